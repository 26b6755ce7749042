package bench;

/**
 * Counts of durations in nanoseconds, in buckets no wider than 1/64 of their value. One thread writes; merge to read.
 */
final class Histogram {
    private static final int FINE_BITS = 6;
    private static final int FINE = 1 << FINE_BITS;

    private final long[] counts = new long[(Long.SIZE - FINE_BITS) * FINE];
    private long count;
    private long sum;
    private long max;

    void record(long nanos) {
        counts[bucket(nanos)]++;
        count++;
        sum += nanos;
        max = Math.max(max, nanos);
    }

    void merge(Histogram other) {
        for (int i = 0; i < counts.length; i++) {
            counts[i] += other.counts[i];
        }
        count += other.count;
        sum += other.sum;
        max = Math.max(max, other.max);
    }

    long count() {
        return count;
    }

    double meanMicros() {
        return count == 0 ? 0 : sum / 1e3 / count;
    }

    double maxMicros() {
        return max / 1e3;
    }

    /** The middle of the bucket below which this share of the durations lies. */
    double quantileMicros(double share) {
        long rank = (long) Math.ceil(share * count);
        long seen = 0;
        for (int i = 0; i < counts.length; i++) {
            seen += counts[i];
            if (seen >= rank && seen > 0) {
                return Math.min((lowest(i) + lowest(i + 1)) / 2e3, max / 1e3);
            }
        }
        return 0;
    }

    private static int bucket(long nanos) {
        if (nanos < FINE) {
            return (int) Math.max(0, nanos);
        }
        int shift = Long.SIZE - 1 - Long.numberOfLeadingZeros(nanos) - FINE_BITS;
        return (shift + 1) * FINE + (int) (nanos >>> shift) - FINE;
    }

    private static long lowest(int bucket) {
        int row = bucket / FINE;
        return row == 0 ? bucket : (long) (bucket % FINE + FINE) << (row - 1);
    }
}
