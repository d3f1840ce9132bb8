package flusspy.spark;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.DateDayVector;
import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float4Vector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.SmallIntVector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.TimeStampMicroVector;
import org.apache.arrow.vector.TinyIntVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VarCharVector;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

final class StoredBatchesTest {
    private static final int ROWS = 300;

    private final BufferAllocator allocator = new RootAllocator();

    /** What is done with a batch while it is valid. */
    private interface Look {
        void at(ColumnarBatch batch) throws Exception;
    }

    private void decode(byte[] message, StructType columns, Look look) throws Exception {
        StoredBatches batches = new StoredBatches("db.t", columns);
        try (VarBinaryVector vector = ArrowMessages.handedOver(message, allocator)) {
            look.at(batches.read(vector));
        } finally {
            batches.close();
        }
    }

    private String refused(byte[] message, StructType columns) {
        String said = Checks.refused(IllegalStateException.class, () -> decode(message, columns, batch -> { }));
        Checks.isTrue(said.contains("table db.t"), said);
        return said.replace("a batch of table db.t is broken: ", "");
    }

    private static boolean isNull(int row, int column) {
        return row % (column + 2) == 1;
    }

    void testValuesOfEveryType() throws Exception {
        DataType[] types = {
            DataTypes.BooleanType, DataTypes.ByteType, DataTypes.ShortType, DataTypes.IntegerType, DataTypes.LongType,
            DataTypes.FloatType, DataTypes.DoubleType, DataTypes.DateType, DataTypes.TimestampNTZType,
            DataTypes.TimestampType, DataTypes.createDecimalType(10, 2), DataTypes.createDecimalType(38, 5),
            DataTypes.StringType, DataTypes.BinaryType,
        };
        StructType columns = new StructType();
        for (int i = 0; i < types.length; i++) {
            columns = columns.add("c" + i, types[i]);
        }
        FieldVector[] vectors = vectors();
        for (String codec : ArrowMessages.CODECS) {
            decode(ArrowMessages.message(codec, vectors), columns, batch -> {
                Checks.equal(ROWS, batch.numRows());
                for (int row = 0; row < ROWS; row++) {
                    for (int column = 0; column < types.length; column++) {
                        Checks.equal(isNull(row, column), batch.column(column).isNullAt(row));
                        if (!isNull(row, column)) {
                            check(row, column, batch.column(column));
                        }
                    }
                }
                Checks.isTrue(batch.column(12).hasNull() && batch.column(12).numNulls() == 22, "nulls are counted");
            });
        }
        for (FieldVector vector : vectors) {
            vector.close();
        }
        allocator.close();
    }

    private FieldVector[] vectors() {
        BitVector flags = new BitVector("c0", allocator);
        TinyIntVector tiny = new TinyIntVector("c1", allocator);
        SmallIntVector small = new SmallIntVector("c2", allocator);
        IntVector ints = new IntVector("c3", allocator);
        BigIntVector longs = new BigIntVector("c4", allocator);
        Float4Vector floats = new Float4Vector("c5", allocator);
        Float8Vector doubles = new Float8Vector("c6", allocator);
        DateDayVector days = new DateDayVector("c7", allocator);
        TimeStampMicroVector moments = new TimeStampMicroVector("c8", allocator);
        TimeStampMicroTZVector instants = new TimeStampMicroTZVector("c9", allocator, "UTC");
        DecimalVector prices = new DecimalVector("c10", allocator, 10, 2);
        DecimalVector sums = new DecimalVector("c11", allocator, 38, 5);
        VarCharVector strings = new VarCharVector("c12", allocator);
        VarBinaryVector bytes = new VarBinaryVector("c13", allocator);
        FieldVector[] all = {
            flags, tiny, small, ints, longs, floats, doubles, days, moments, instants, prices, sums, strings, bytes,
        };
        for (int row = 0; row < ROWS; row++) {
            flags.setSafe(row, row % 3 == 0 ? 1 : 0);
            tiny.setSafe(row, (byte) row);
            small.setSafe(row, (short) (row * -100));
            ints.setSafe(row, row * -1_000_000);
            longs.setSafe(row, row * -1_000_000_000_000L);
            floats.setSafe(row, row / 4f);
            doubles.setSafe(row, row / 3.0);
            days.setSafe(row, row - 20);
            moments.setSafe(row, row * -1_000_001L);
            instants.setSafe(row, row * 1_000_001L);
            prices.setSafe(row, price(row));
            sums.setSafe(row, sum(row));
            strings.setSafe(row, string(row).getBytes(StandardCharsets.UTF_8));
            bytes.setSafe(row, new byte[row % 5]);
        }
        for (int column = 0; column < all.length; column++) {
            all[column].setValueCount(ROWS);
            for (int row = 0; row < ROWS; row++) {
                if (isNull(row, column)) {
                    all[column].setNull(row);
                }
            }
        }
        return all;
    }

    private static BigDecimal price(int row) {
        return BigDecimal.valueOf(row * -1_234_567L, 2);
    }

    private static BigDecimal sum(int row) {
        return new BigDecimal("-99999999999999999999999999999999.99999").add(BigDecimal.valueOf(row));
    }

    private static String string(int row) {
        return ("ä" + row).repeat(row % 7);
    }

    private static void check(int row, int column, ColumnVector found) {
        switch (column) {
            case 0 -> Checks.equal(row % 3 == 0, found.getBoolean(row));
            case 1 -> Checks.equal((byte) row, found.getByte(row));
            case 2 -> Checks.equal((short) (row * -100), found.getShort(row));
            case 3 -> Checks.equal(row * -1_000_000, found.getInt(row));
            case 4 -> Checks.equal(row * -1_000_000_000_000L, found.getLong(row));
            case 5 -> Checks.equal(row / 4f, found.getFloat(row));
            case 6 -> Checks.equal(row / 3.0, found.getDouble(row));
            case 7 -> Checks.equal(row - 20, found.getInt(row));
            case 8 -> Checks.equal(row * -1_000_001L, found.getLong(row));
            case 9 -> Checks.equal(row * 1_000_001L, found.getLong(row));
            case 10 -> Checks.equal(price(row), found.getDecimal(row, 10, 2).toJavaBigDecimal());
            case 11 -> Checks.equal(sum(row), found.getDecimal(row, 38, 5).toJavaBigDecimal());
            case 12 -> Checks.equal(string(row), found.getUTF8String(row).toString());
            default -> Checks.equal(new byte[row % 5], found.getBinary(row));
        }
    }

    // ---- messages of strings ----

    private static final StructType NAMES = new StructType().add("name", DataTypes.StringType);

    private byte[] names(String codec, String... values) throws Exception {
        try (VarCharVector vector = new VarCharVector("name", allocator)) {
            vector.allocateNew();
            for (int row = 0; row < values.length; row++) {
                if (values[row] != null) {
                    vector.setSafe(row, values[row].getBytes(StandardCharsets.UTF_8));
                }
            }
            vector.setValueCount(values.length);
            return ArrowMessages.message(codec, vector);
        }
    }

    void testMemoryIsReused() throws Exception {
        StoredBatches batches = new StoredBatches("db.t", NAMES);
        for (String value : new String[] {"short", "long".repeat(10_000), "", "last"}) {
            for (String codec : ArrowMessages.CODECS) {
                try (VarBinaryVector vector = ArrowMessages.handedOver(names(codec, value, null, value), allocator)) {
                    ColumnarBatch batch = batches.read(vector);
                    Checks.equal(value, batch.column(0).getUTF8String(0).toString());
                    Checks.equal(null, batch.column(0).getUTF8String(1));
                    Checks.equal(value, batch.column(0).getUTF8String(2).toString());
                }
            }
        }
        batches.close();
        batches.close();
        allocator.close();
    }

    void testEveryMessageThatIsCutOffIsRefused() throws Exception {
        for (String codec : ArrowMessages.CODECS) {
            byte[] whole = names(codec, "one", "two".repeat(40));
            int needed = whole.length - 7; // the last buffer may be followed by up to seven bytes of padding
            for (int length = 0; length < needed; length++) {
                refused(Arrays.copyOf(whole, length), NAMES);
            }
        }
    }

    void testMessagesOfOtherColumns() throws Exception {
        StructType two = NAMES.add("id", DataTypes.LongType);
        Checks.equal("it has 1 columns and 3 buffers, not 2 and 5", refused(names("none", "x"), two));
        Checks.equal("its compression is not zstd", refused(names("lz4", "x".repeat(99)), NAMES));
        Checks.equal("it does not begin with the prefix of a message", refused(new byte[40], NAMES));
    }

    void testNullsInAColumnThatHasNone() throws Exception {
        StructType strict = new StructType().add("name", DataTypes.StringType, false);
        String said = refused(names("none", "x", null), strict);
        Checks.equal("column 'name' of table db.t is NOT NULL, but 1 of 2 values are null", said);
    }

    void testOffsetsThatLeadOutside() throws Exception {
        for (int[] offsets : new int[][] {{0, 3, 7}, {-1, 3, 6}, {0, 4, 3}, {0, 3, Integer.MAX_VALUE}}) {
            byte[] message = names("none", "one", "two");
            ByteBuffer bytes = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN);
            int body = 8 + bytes.getInt(4);
            int place = body + 8; // behind the null bits
            Checks.equal(3, bytes.getInt(place + 4));
            for (int i = 0; i < offsets.length; i++) {
                bytes.putInt(place + 4 * i, offsets[i]);
            }
            Checks.isTrue(refused(message, NAMES).startsWith("the offsets of a column"), Arrays.toString(offsets));
        }
    }

    void testLengthsOfCompressedBuffersThatCannotBe() throws Exception {
        byte[] message = names("zstd", "one".repeat(5_000));
        ByteBuffer bytes = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN);
        int place = -1;
        for (int i = 8 + bytes.getInt(4); i + 8 <= message.length; i += 8) {
            place = bytes.getLong(i) == 15_000 ? i : place;
        }
        for (long length : new long[] {-2, Long.MIN_VALUE, Long.MAX_VALUE, 15_001, 14_999}) {
            bytes.putLong(place, length);
            String said = refused(message, NAMES);
            Checks.isTrue(said.startsWith("a compressed buffer has") || said.startsWith("a buffer cannot"), said);
        }
    }

    // ---- decimals ----

    void testDecimalsThatDoNotFit() throws Exception {
        for (String stored : new String[] {"1000000000000000000", "-1000000000000000000", "99999999999999999999",
                "9223372036854775807", "-9223372036854775808", "9223372036854775808"}) {
            String said = Checks.refused(IllegalStateException.class, () -> decimal(stored, 18));
            Checks.equal("a value of the table does not fit its type, DecimalType(18,0)", said);
        }
        for (String stored : new String[] {"999999999999999999", "-999999999999999999", "0"}) {
            Checks.equal(stored, decimal(stored, 18));
        }
        Checks.equal("-9223372036854775808", decimal("-9223372036854775808", 19));
    }

    /** A value of a column with 38 digits, read from a column with fewer. */
    private String decimal(String stored, int precision) throws Exception {
        String[] found = new String[1];
        try (DecimalVector vector = new DecimalVector("price", allocator, 38, 0)) {
            vector.allocateNew(1);
            vector.set(0, new BigDecimal(stored));
            vector.setValueCount(1);
            StructType column = new StructType().add("price", DataTypes.createDecimalType(precision, 0));
            decode(ArrowMessages.message("none", vector), column,
                batch -> found[0] = batch.column(0).getDecimal(0, precision, 0).toString());
        }
        return found[0];
    }
}
