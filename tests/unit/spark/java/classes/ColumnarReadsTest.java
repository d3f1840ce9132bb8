package flusspy.spark;

import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BitVector;

import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;

final class ColumnarReadsTest {
    void testTheColumnForMessagesHasANameOfItsOwn() {
        StructType columns = new StructType();
        for (String name : new String[] {"__stored_batch", "__stored_batch_", "__stored_batch__"}) {
            StructType read = ColumnarReads.withMessages(columns);
            Checks.equal(columns.length() + 1, read.length());
            Checks.equal(name, read.fields()[columns.length()].name());
            Checks.equal(DataTypes.BinaryType, read.fields()[columns.length()].dataType());
            columns = read;
        }
    }

    void testWrappedColumns() {
        try (BufferAllocator allocator = new RootAllocator(); BitVector flags = new BitVector("flags", allocator)) {
            flags.allocateNew(3);
            flags.set(0, 1);
            flags.set(2, 0);
            flags.setValueCount(3);
            ColumnVector column = new ColumnarReads.WrappedVector(new ArrowColumnVector(flags), DataTypes.BooleanType);
            Checks.isTrue(column.getBoolean(0) && column.isNullAt(1) && !column.getBoolean(2), "values");
            Checks.equal(1, column.numNulls());
            Checks.isTrue(column.hasNull(), "a null");
            column.close();
            Checks.equal(3, flags.getValueCount());
        }
    }

    void testSplitsHaveNoRowReader() {
        ColumnarReads.ColumnarReaderFactory factory = new ColumnarReads.ColumnarReaderFactory(null, "db.t", new StructType());
        Checks.isTrue(factory.supportColumnarReads(null), "columnar");
        Checks.refused(UnsupportedOperationException.class, () -> factory.createReader(null));
    }
}
