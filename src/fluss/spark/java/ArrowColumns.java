package flusspy.spark;

import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.BitVectorHelper;
import org.apache.arrow.vector.DateDayVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float4Vector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.TimeStampMicroVector;
import org.apache.arrow.vector.VarCharVector;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.arrow.ArrowFieldWriter;
import org.apache.spark.sql.execution.arrow.ArrowWriter$;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The columns of an Arrow batch that is filled row by row, by plain stores into Arrow's memory.
 *
 * A column has room for MAX_ROWS rows from the beginning, so it does not check for room; columns of strings
 * double their memory when it is full. Types without a class here are written by Spark's own writers.
 */
public class ArrowColumns {
    public static final int MAX_ROWS = 8192;

    private ArrowColumns() {
    }

    /** The column for a vector; `index` is its position in the rows. */
    static Column column(FieldVector vector, int index) {
        boolean micros = vector instanceof TimeStampMicroVector || vector instanceof TimeStampMicroTZVector;
        if (vector instanceof BigIntVector || micros) {
            return new Longs((BaseFixedWidthVector) vector, index);
        }
        if (vector instanceof IntVector || vector instanceof DateDayVector) {
            return new Ints((BaseFixedWidthVector) vector, index);
        }
        if (vector instanceof Float8Vector) {
            return new Doubles((BaseFixedWidthVector) vector, index);
        }
        if (vector instanceof Float4Vector) {
            return new Floats((BaseFixedWidthVector) vector, index);
        }
        if (vector instanceof VarCharVector) {
            return new Strings((VarCharVector) vector, index);
        }
        return new WrittenBySpark(ArrowWriter$.MODULE$.createFieldWriter(vector), index);
    }

    /** One column of the batch that is being filled. */
    abstract static class Column {
        final int index;

        Column(int index) {
            this.index = index;
        }

        /** Append the value of the row, which is row `at` of the batch. */
        abstract void add(InternalRow row, int at);

        /** Complete the vector of a batch with `count` rows. */
        abstract void finish(int count);

        /** Prepare for the next batch. */
        abstract void reset();
    }

    /** A column whose validity bits are written here: all are set at first, nulls clear theirs. */
    abstract static class Direct extends Column {
        final FieldVector vector;
        boolean nulls = true;

        Direct(FieldVector vector, int index) {
            super(index);
            this.vector = vector;
        }

        void setNull(int at) {
            nulls = true;
            BitVectorHelper.unsetBit(vector.getValidityBuffer(), at);
        }

        void reset() {
            if (nulls) {
                Platform.setMemory(vector.getValidityBufferAddress(), (byte) 0xff, MAX_ROWS / 8);
                nulls = false;
            }
        }
    }

    /** Numbers, dates and timestamps: values of one width. */
    abstract static class Fixed extends Direct {
        final long values;

        Fixed(BaseFixedWidthVector vector, int index) {
            super(vector, index);
            vector.allocateNew(MAX_ROWS);
            values = vector.getDataBufferAddress();
            reset();
        }

        void add(InternalRow row, int at) {
            if (row.isNullAt(index)) {
                setNull(at);
            } else {
                put(row, at);
            }
        }

        abstract void put(InternalRow row, int at);

        void finish(int count) {
            vector.setValueCount(count);
        }
    }

    /** 64-bit integers, and microseconds since 1970. */
    static class Longs extends Fixed {
        Longs(BaseFixedWidthVector vector, int index) {
            super(vector, index);
        }

        void put(InternalRow row, int at) {
            Platform.putLong(null, values + 8L * at, row.getLong(index));
        }
    }

    /** 32-bit integers, and days since 1970. */
    static class Ints extends Fixed {
        Ints(BaseFixedWidthVector vector, int index) {
            super(vector, index);
        }

        void put(InternalRow row, int at) {
            Platform.putInt(null, values + 4L * at, row.getInt(index));
        }
    }

    /** 64-bit floating-point numbers. */
    static class Doubles extends Fixed {
        Doubles(BaseFixedWidthVector vector, int index) {
            super(vector, index);
        }

        void put(InternalRow row, int at) {
            Platform.putDouble(null, values + 8L * at, row.getDouble(index));
        }
    }

    /** 32-bit floating-point numbers. */
    static class Floats extends Fixed {
        Floats(BaseFixedWidthVector vector, int index) {
            super(vector, index);
        }

        void put(InternalRow row, int at) {
            Platform.putFloat(null, values + 4L * at, row.getFloat(index));
        }
    }

    /** Strings. */
    static class Strings extends Direct {
        private static final long FIRST_BYTES = 16L * MAX_ROWS;

        private final VarCharVector strings;
        private final long offsets;
        private long bytes;
        private long capacity;
        private int end = 0;

        Strings(VarCharVector vector, int index) {
            super(vector, index);
            strings = vector;
            vector.allocateNew(FIRST_BYTES, MAX_ROWS);
            offsets = vector.getOffsetBufferAddress();
            locate();
            reset();
        }

        private void locate() {
            bytes = strings.getDataBufferAddress();
            capacity = strings.getDataBuffer().capacity();
        }

        void add(InternalRow row, int at) {
            if (row.isNullAt(index)) {
                setNull(at);
            } else {
                UTF8String value = row.getUTF8String(index);
                int length = value.numBytes();
                if (capacity - end < length) {
                    strings.reallocDataBuffer(Math.max(2 * capacity, (long) end + length));
                    locate();
                }
                value.writeToMemory(null, bytes + end);
                end += length;
            }
            Platform.putInt(null, offsets + 4L * at + 4, end);
        }

        void finish(int count) {
            strings.setLastSet(count - 1);
            strings.setValueCount(count);
        }

        void reset() {
            super.reset();
            end = 0;
        }
    }

    /** All other types, written by Spark. */
    static class WrittenBySpark extends Column {
        private final ArrowFieldWriter writer;

        WrittenBySpark(ArrowFieldWriter writer, int index) {
            super(index);
            this.writer = writer;
        }

        void add(InternalRow row, int at) {
            writer.write(row, index);
        }

        void finish(int count) {
            writer.finish();
        }

        void reset() {
            writer.reset();
        }
    }
}
