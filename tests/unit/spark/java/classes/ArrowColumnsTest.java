package flusspy.spark;

import java.nio.charset.StandardCharsets;

import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.DateDayVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float4Vector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.TimeStampMicroVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.util.Text;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

final class ArrowColumnsTest {
    private final BufferAllocator allocator = new RootAllocator();

    /** Fill three batches, the first with nulls, and look at every value. */
    private void fill(FieldVector vector, Class<?> kind, Object[] values, Object[] expected) {
        ArrowColumns.Column column = ArrowColumns.column(vector, 1);
        Checks.equal(kind, column.getClass());
        for (int round = 0; round < 3; round++) {
            int count = values.length - round;
            for (int row = 0; row < count; row++) {
                column.add(row(round == 0 && row % 3 == 1 ? null : values[row]), row);
            }
            column.finish(count);
            Checks.equal(count, vector.getValueCount());
            for (int row = 0; row < count; row++) {
                Checks.equal(round == 0 && row % 3 == 1 ? null : expected[row], vector.getObject(row));
            }
            column.reset();
        }
        vector.close();
        allocator.close();
    }

    private static InternalRow row(Object value) {
        return new GenericInternalRow(new Object[] {"not this one", value});
    }

    private static Object[] longs() {
        Object[] values = new Object[ArrowColumns.MAX_ROWS];
        for (int i = 0; i < values.length; i++) {
            values[i] = i * -1_000_000_000_003L;
        }
        return values;
    }

    void testLongs() {
        fill(new BigIntVector("c", allocator), ArrowColumns.Longs.class, longs(), longs());
    }

    void testTimestamps() {
        for (FieldVector vector : new FieldVector[] {
            new TimeStampMicroVector("c", allocator), new TimeStampMicroTZVector("c", allocator, "UTC")}) {
            ArrowColumns.Column column = ArrowColumns.column(vector, 1);
            column.add(row(-1L), 0);
            column.add(row(null), 1);
            column.finish(2);
            Checks.equal(-1L, vector.getDataBuffer().getLong(0));
            Checks.equal(1, vector.getNullCount());
            vector.close();
        }
        allocator.close();
    }

    void testInts() {
        Object[] values = {0, -1, Integer.MIN_VALUE, Integer.MAX_VALUE};
        fill(new IntVector("c", allocator), ArrowColumns.Ints.class, values, values);
    }

    void testDays() {
        Object[] values = {0, -1, 20_000, -700_000};
        fill(new DateDayVector("c", allocator), ArrowColumns.Ints.class, values, values);
    }

    void testDoubles() {
        Object[] values = {0.1, -0.0, Double.NaN, Double.NEGATIVE_INFINITY, Double.MIN_VALUE};
        fill(new Float8Vector("c", allocator), ArrowColumns.Doubles.class, values, values);
    }

    void testFloats() {
        Object[] values = {0.1f, -0.0f, Float.NaN, Float.NEGATIVE_INFINITY, Float.MIN_VALUE};
        fill(new Float4Vector("c", allocator), ArrowColumns.Floats.class, values, values);
    }

    void testFlagsAreLeftToSpark() {
        Object[] values = {true, false, true, true, false};
        fill(new BitVector("c", allocator), ArrowColumns.WrittenBySpark.class, values, values);
    }

    void testStrings() {
        strings("", "a", "ä€😀", "x".repeat(31), "");
    }

    /** One string alone, and several together, need more than the room of an empty batch. */
    void testStringsThatNeedMoreMemory() {
        strings("x".repeat(16 * ArrowColumns.MAX_ROWS + 1), "y".repeat(1_000_000), "ä", "z".repeat(5_000_000));
    }

    void testAFullBatchOfStrings() {
        String[] values = new String[ArrowColumns.MAX_ROWS];
        for (int i = 0; i < values.length; i++) {
            values[i] = "value " + i + "-".repeat(i % 50);
        }
        strings(values);
    }

    private void strings(String... strings) {
        Object[] values = new Object[strings.length];
        Object[] expected = new Object[strings.length];
        for (int i = 0; i < strings.length; i++) {
            values[i] = UTF8String.fromBytes(strings[i].getBytes(StandardCharsets.UTF_8));
            expected[i] = new Text(strings[i]);
        }
        fill(new VarCharVector("c", allocator), ArrowColumns.Strings.class, values, expected);
    }
}
