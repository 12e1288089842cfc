-- Decides one request of one bucket: the most frequent action, without what the others need.
--
-- It locks nothing before it writes, and a denial writes nothing. The row is the one that was read or the update finds
-- none; then, and if there is no row yet or no such state in it, the way of a batch is taken, which waits for others.

CREATE OR REPLACE FUNCTION public.throttle_decide_1(
    of_policy text, of_key bytea, now bigint, margin bigint, p bigint, each bigint, each_rest bigint,
    most bigint, most_rest bigint, room bigint, room_rest bigint, patience text
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $$
DECLARE
    latest CONSTANT bigint := 4503599627370495;
    row tid;
    state bigint[];
    clock bigint;
    debt bigint;
    rest bigint;
    -- Not looked at: a query to set it would take longer.
    waits text;
BEGIN
    SELECT t.state, t.ctid INTO state, row
    FROM public.throttle AS t WHERE t.policy = of_policy AND t.key = of_key;
    IF cardinality(state) = 4 AND state[1] = 1 AND state[4] = p
        AND state[2] >= 0 AND state[3] >= 0 AND state[3] < p THEN
        clock := greatest(0, least(latest, extract(epoch FROM clock_timestamp()) * 1000000));
        IF now < 0 THEN
            now := clock;
        END IF;
        IF state[2] > now OR state[2] = now AND state[3] > 0 THEN
            debt := state[2] - now;
            rest := state[3];
            IF debt > most OR debt = most AND rest > most_rest THEN
                debt := most;
                rest := most_rest;
            END IF;
            debt := debt + each + (rest + each_rest) / p;
            rest := (rest + each_rest) % p;
        ELSE
            debt := each;
            rest := each_rest;
        END IF;
        IF debt > room OR debt = room AND rest > room_rest THEN
            RETURN ARRAY[0, now] || state;
        END IF;
        waits := set_config('lock_timeout', patience, true);
        UPDATE public.throttle AS t
        SET state = ARRAY[1, now + debt, rest, p],
            expires_at = clock + least(latest - now, debt + (rest > 0)::integer) + margin
        WHERE t.ctid = row;
        IF FOUND THEN
            RETURN ARRAY[1, now] || state;
        END IF;
    END IF;
    RETURN many.answer FROM public.throttle_decide_many_1(
        ARRAY[of_policy], ARRAY[encode(of_key, 'hex')], '{2}', '{0}',
        ARRAY[margin, 0, 1, 1, 1, p, each, each_rest, most, most_rest, room, room_rest],
        ARRAY[1, 1, now], patience::integer) AS many;
END $$;
