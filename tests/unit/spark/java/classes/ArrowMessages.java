package flusspy.spark;

import java.io.ByteArrayOutputStream;
import java.nio.channels.Channels;
import java.util.List;

import org.apache.arrow.compression.Lz4CompressionCodec;
import org.apache.arrow.compression.ZstdCompressionCodec;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.compression.CompressionCodec;
import org.apache.arrow.vector.compression.NoCompressionCodec;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;

/** Record batch messages that Arrow's Java library writes. */
final class ArrowMessages {
    static final List<String> CODECS = List.of("none", "zstd");

    private ArrowMessages() {
    }

    static byte[] message(String codec, FieldVector... vectors) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        VectorSchemaRoot root = new VectorSchemaRoot(List.of(vectors));
        root.setRowCount(vectors[0].getValueCount());
        try (ArrowRecordBatch batch = new VectorUnloader(root, true, compression(codec), true).getRecordBatch()) {
            MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)), batch);
        }
        return out.toByteArray();
    }

    private static CompressionCodec compression(String codec) {
        switch (codec) {
            case "zstd":
                return new ZstdCompressionCodec();
            case "lz4":
                return new Lz4CompressionCodec();
            default:
                return NoCompressionCodec.INSTANCE;
        }
    }

    /** A vector with the message as its first value, as Python hands it over. */
    static VarBinaryVector handedOver(byte[] message, BufferAllocator allocator) {
        VarBinaryVector vector = new VarBinaryVector("stored", allocator);
        vector.allocateNew(message.length, 1);
        vector.set(0, message);
        vector.setValueCount(1);
        return vector;
    }
}
