-- The kernels of throttle-core, number for number, one CASE for each algorithm.
--
-- A rule is a slice of `shapes` that begins at `r`, a stored state a slice of `states` that begins at `s`:
--
-- | tag | rule | numbers after the tag | state |
-- |---|---|---|---|
-- | 0 | | | none |
-- | 1 | bucket | p, then spans: of the cost, most that can be owed, most that may be owed after | TAT, fraction, p |
-- | 2 | fixed window | period, limit | period, index, count |
-- | 3 | sliding window | period, limit, unit, units | period, index, current, previous |
-- | 4 | sliding window log | period, limit | period, number of entries, then of each: time, cost |
--
-- A span is microseconds and a rest in ticks of 1/p µs. Every number fits 53 bits, and so does every sum; products that
-- might not are numeric.

-- How many numbers the state at `s` has; nothing if it is no state.
CREATE OR REPLACE FUNCTION public.throttle_length_1(states bigint[], s integer) RETURNS integer
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    too_large CONSTANT bigint := 9007199254740992;
    u32 CONSTANT bigint := 4294967296;
    tag CONSTANT bigint := states[s];
    a CONSTANT bigint := states[s + 1];
    b CONSTANT bigint := states[s + 2];
    c CONSTANT bigint := states[s + 3];
    d CONSTANT bigint := states[s + 4];
    last bigint := -1;
    total bigint := 0;
BEGIN
    CASE
    WHEN tag = 0 THEN
        RETURN 1;
    WHEN tag = 1 AND a >= 0 AND a < too_large AND b >= 0 AND b < c AND c < u32 THEN
        RETURN 4;
    WHEN tag = 2 AND a > 0 AND a < too_large AND b >= 0 AND b < too_large / a AND c >= 0 AND c < u32 THEN
        RETURN 4;
    WHEN tag = 3 AND a > 0 AND a < too_large AND b >= 0 AND b < too_large / a AND c >= 0 AND c < u32
        AND d >= 0 AND d < u32 THEN
        RETURN 5;
    WHEN tag = 4 AND a > 0 AND a < too_large AND b BETWEEN 0 AND 65536 THEN
        FOR entry IN s + 3 .. s + 1 + 2 * b BY 2 LOOP
            IF (states[entry] > last AND states[entry] < too_large AND states[entry + 1] > 0) IS NOT TRUE THEN
                RETURN NULL;
            END IF;
            last := states[entry];
            total := total + states[entry + 1];
        END LOOP;
        RETURN CASE WHEN total <= 65536 THEN 3 + 2 * b END;
    ELSE
        RETURN NULL;
    END CASE;
END $$;

-- The state as the rule sees it at one moment. Of a bucket: debt and rest; of a fixed window: index and count; of a
-- sliding window: index, current, previous, elapsed units; of a log: entries that no longer count, and units used.
CREATE OR REPLACE FUNCTION public.throttle_view_1(
    shapes bigint[], r integer, states bigint[], s integer, now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    is_own CONSTANT boolean := coalesce(states[s] = shapes[r], false);
    period CONSTANT bigint := shapes[r + 1];
    present bigint;
    index bigint;
    first bigint;
    second bigint := 0;
    gone bigint := 0;
BEGIN
    CASE shapes[r]
    WHEN 1 THEN
        IF NOT is_own THEN
            RETURN ARRAY[0, 0];
        END IF;
        first := states[s + 1] - now;
        second := states[s + 2];
        IF second > 0 AND states[s + 3] <> shapes[r + 1] THEN
            first := first + 1;
            second := 0;
        END IF;
        IF first < 0 THEN
            RETURN ARRAY[0, 0];
        ELSIF first > shapes[r + 4] OR first = shapes[r + 4] AND second > shapes[r + 5] THEN
            RETURN ARRAY[shapes[r + 4], shapes[r + 5]];
        END IF;
        RETURN ARRAY[first, second];
    WHEN 2 THEN
        present := now / period;
        IF NOT is_own THEN
            RETURN ARRAY[present, 0];
        END IF;
        index := states[s + 2];
        first := states[s + 3];
        IF states[s + 1] <> period THEN
            RETURN ARRAY[present, CASE WHEN (index + 1) * states[s + 1] > now THEN first ELSE 0 END];
        ELSIF index < present THEN
            RETURN ARRAY[present, 0];
        END IF;
        RETURN ARRAY[CASE WHEN index = present + 1 THEN index ELSE present END, first];
    WHEN 3 THEN
        present := now / period;
        gone := now % period / shapes[r + 3];
        IF NOT is_own THEN
            RETURN ARRAY[present, 0, 0, gone];
        END IF;
        index := states[s + 2];
        first := states[s + 3];
        second := states[s + 4];
        IF states[s + 1] <> period THEN
            IF now < (index + 1) * states[s + 1] THEN
                RETURN ARRAY[present, first, second, gone];
            ELSIF first > 0 AND now < (index + 2) * states[s + 1] THEN
                RETURN ARRAY[present, 0, first, gone];
            END IF;
            RETURN ARRAY[present, 0, 0, gone];
        END IF;
        RETURN CASE
            WHEN index = present + 1 THEN ARRAY[index, first, second, 0]
            WHEN index >= present THEN ARRAY[present, first, second, gone]
            WHEN index + 1 = present THEN ARRAY[present, 0, first, gone]
            ELSE ARRAY[present, 0, 0, gone]
        END;
    WHEN 4 THEN
        IF is_own THEN
            FOR entry IN s + 3 .. s + 1 + 2 * states[s + 2] BY 2 LOOP
                IF states[entry] + period > now THEN
                    second := second + states[entry + 1];
                ELSE
                    gone := gone + 1;
                END IF;
            END LOOP;
        END IF;
        RETURN ARRAY[gone, second];
    END CASE;
END $$;

-- How many requests fit one after the other, at most `times`.
CREATE OR REPLACE FUNCTION public.throttle_room_1(
    shapes bigint[], r integer, view bigint[], cost bigint, times bigint
) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    units CONSTANT bigint := shapes[r + 4];
    room bigint;
BEGIN
    IF cost = 0 THEN
        RETURN times;
    END IF;
    CASE shapes[r]
    WHEN 1 THEN
        RETURN least(times, greatest(0, div(
            (shapes[r + 6] - view[1])::numeric * shapes[r + 1] + shapes[r + 7] - view[2],
            shapes[r + 2]::numeric * shapes[r + 1] + shapes[r + 3]
        )));
    WHEN 2 THEN
        room := shapes[r + 2] - view[2];
    WHEN 3 THEN
        room := (shapes[r + 2] * units - view[3] * (units - view[4]) - view[2] * units) / units;
    WHEN 4 THEN
        room := shapes[r + 2] - view[2];
    END CASE;
    RETURN least(times, greatest(0, room) / cost);
END $$;

-- What the rule stores when `granted` requests of `cost` were charged; when the cost was given back, if that is -1.
CREATE OR REPLACE FUNCTION public.throttle_after_1(
    shapes bigint[], r integer, states bigint[], s integer, view bigint[], cost bigint, granted bigint, now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    p CONSTANT bigint := shapes[r + 1];
    first bigint;
    second bigint;
BEGIN
    CASE shapes[r]
    WHEN 1 THEN
        second := view[2] + granted * shapes[r + 3];
        first := view[1] + granted * shapes[r + 2] + second / p;
        second := second % p;
        IF second < 0 THEN
            first := first - 1;
            second := second + p;
        END IF;
        IF first < 0 THEN
            RETURN ARRAY[1, now, 0, p];
        END IF;
        RETURN ARRAY[1, now + first, second, p];
    WHEN 2 THEN
        RETURN ARRAY[2, p, view[1], greatest(0, view[2] + granted * cost)];
    WHEN 3 THEN
        RETURN ARRAY[3, p, view[1], greatest(0, view[2] + granted * cost), view[3]];
    WHEN 4 THEN
        RETURN public.throttle_log_1(shapes, r, states, s, view, cost * granted, now);
    END CASE;
END $$;

-- A log with `units` more at `now`, or fewer, the newest first. Entries that no longer count go; those at or after `now`
-- become one of now.
CREATE OR REPLACE FUNCTION public.throttle_log_1(
    shapes bigint[], r integer, states bigint[], s integer, view bigint[], units bigint, now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    is_own CONSTANT boolean := coalesce(states[s] = shapes[r], false);
    first CONSTANT integer := s + 3 + 2 * view[1];
    -- The last entry that stays as it is.
    last integer := CASE WHEN is_own THEN s + 1 + 2 * states[s + 2] END;
    time bigint := now;
    cost bigint := greatest(0, units);
    owed bigint := greatest(0, -units);
    kept bigint[];
BEGIN
    WHILE last >= first AND states[last] >= now LOOP
        cost := cost + states[last + 1];
        last := last - 2;
    END LOOP;
    WHILE owed >= cost AND last >= first LOOP
        owed := owed - cost;
        time := states[last];
        cost := states[last + 1];
        last := last - 2;
    END LOOP;
    cost := cost - owed;
    IF last >= first THEN
        kept := states[first : last + 1];
    END IF;
    IF cost > 0 THEN
        kept := kept || time || cost;
    END IF;
    RETURN CASE WHEN kept IS NULL THEN ARRAY[0] ELSE ARRAY[4, shapes[r + 1], cardinality(kept) / 2] || kept END;
END $$;

-- What is reported of a rule after `granted` requests: the state, or of a log units used, the newest entry, and when the
-- next request fits, 0 if now.
CREATE OR REPLACE FUNCTION public.throttle_report_1(
    shapes bigint[], r integer, states bigint[], s integer, length integer, view bigint[], cost bigint,
    granted bigint, now bigint
) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    entries CONSTANT integer := CASE WHEN states[s] = 4 THEN states[s + 2] ELSE 0 END;
    last CONSTANT integer := s + 1 + 2 * entries;
    entry integer;
    excess bigint;
    fits_at bigint := 0;
BEGIN
    IF shapes[r] <> 4 THEN
        RETURN CASE WHEN states[s] IN (1, 2, 3) THEN states[s : s + length - 1] ELSE ARRAY[0] END;
    END IF;
    entry := s + 3 + 2 * view[1];
    excess := view[2] + (granted + 1) * cost - shapes[r + 2];
    IF cost > 0 AND excess > 0 THEN
        fits_at := now;
        WHILE entry <= last LOOP
            excess := excess - states[entry + 1];
            IF excess <= 0 THEN
                fits_at := least(now, states[entry]);
                EXIT;
            END IF;
            entry := entry + 2;
        END LOOP;
        fits_at := fits_at + shapes[r + 1];
    END IF;
    RETURN ARRAY[4, view[2], CASE WHEN entries > 0 THEN states[last] ELSE 0 END, fits_at];
END $$;

-- When nothing of a state counts any more, in microseconds since the Unix epoch.
CREATE OR REPLACE FUNCTION public.throttle_expiry_1(state bigint[]) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE state[1]
        WHEN 0 THEN 0
        WHEN 1 THEN state[2] + (state[3] > 0)::integer
        WHEN 2 THEN (state[3] + (state[4] > 0)::integer) * state[2]
        WHEN 3 THEN (state[3] + CASE WHEN state[4] > 0 THEN 2 WHEN state[5] > 0 THEN 1 ELSE 0 END) * state[2]
        WHEN 4 THEN state[2 + 2 * state[3]] + state[2]
    END;
END $$;
