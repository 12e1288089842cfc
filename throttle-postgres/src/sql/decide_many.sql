-- Decides a batch of actions: one statement, whatever is in it.
--
-- Row n of `policies`, `keys` (in hexadecimal), `kinds` and `firsts` is a key: what its actions are (0: they change
-- nothing, 1: they may, 2: it is one request of one bucket) and how many actions come before them. An action is three
-- numbers: where its shape begins (any_rules.sql), how many times it is asked, and when, or -1 for now. They are answered
-- by their position: granted, the time, and the states; or nothing if the stored state is not readable.
--
-- All rows are locked before the first is decided, in the order of their keys, whether they exist or not: no two batches
-- wait for each other. What happens then takes no other lock, and the time is read after the last one was got.
--
-- Nobody waits for a row longer than `patience`, in milliseconds.
--
-- A table may grow from nothing while the plans in use were made, so the settings leave no plan but the index.

-- Whether it is no state, or that of a bucket whose ticks are 1/p µs.
CREATE OR REPLACE FUNCTION public.throttle_is_bucket_1(state bigint[], p bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT cardinality(state) = 0 OR (cardinality(state) = 4 AND state[1] = 1 AND state[4] = p
        AND state[2] >= 0 AND state[3] >= 0 AND state[3] < state[4]) IS TRUE
$$;

CREATE OR REPLACE FUNCTION public.throttle_decide_many_1(
    policies text[], keys text[], kinds integer[], firsts integer[], shapes bigint[], actions bigint[],
    patience integer
) RETURNS TABLE (place integer, answer bigint[])
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
<<batch>>
DECLARE
    latest CONSTANT bigint := 4503599627370495;
    clock bigint;
    answered integer := 0;
    stored record;
    done record;
    o integer;
    moment bigint;
    state bigint[];
    expires bigint;
BEGIN
    PERFORM set_config('lock_timeout', patience::text, true);
    IF 0 < ANY (kinds) THEN
        INSERT INTO public.throttle AS t (policy, key, state, expires_at)
        SELECT asked.policy, decode(asked.key, 'hex'), '{}', 0
        FROM unnest(policies, keys, kinds) AS asked (policy, key, kind)
        WHERE asked.kind > 0
        ORDER BY asked.policy COLLATE "C", asked.key COLLATE "C"
        ON CONFLICT (policy, key) DO UPDATE SET expires_at = t.expires_at WHERE false;
    END IF;
    clock := greatest(0, least(latest, extract(epoch FROM clock_timestamp()) * 1000000));

    -- Single requests of buckets, which most are, all at once: what any_rules.sql would answer, without the calls.
    -- The arithmetic of rules.sql is here and in decide.sql again. Of the conformance suite the trials of `model` hold those two
    -- to the kernels, `a_thousand_actions_are_answered_in_order` this, and `a_batch_is_answered_as_its_actions_alone` all
    -- three to each other.
    IF 2 = ANY (kinds) THEN
        RETURN QUERY
        WITH found AS (
            SELECT asked.first + 1 AS place, t.ctid AS row, t.state, actions[3 * asked.first + 1]::integer AS o,
                CASE WHEN actions[3 * asked.first + 3] < 0 THEN clock ELSE actions[3 * asked.first + 3] END AS now
            FROM unnest(policies, keys, kinds, firsts) AS asked (policy, key, kind, first)
            LEFT JOIN public.throttle AS t ON t.policy = asked.policy AND t.key = decode(asked.key, 'hex')
            WHERE asked.kind = 2
            OFFSET 0
        ), owed AS (
            SELECT f.*, shapes[f.o + 5] AS p, coalesce(f.state[2] - f.now, 0) AS debt, coalesce(f.state[3], 0) AS rest
            FROM found AS f
            WHERE public.throttle_is_bucket_1(f.state, shapes[f.o + 5])
            OFFSET 0
        ), viewed AS (
            SELECT w.place, w.row, w.state, w.o, w.now, w.p,
                least(greatest(w.debt, 0), shapes[w.o + 8]) AS debt,
                CASE WHEN w.debt < 0 THEN 0
                    WHEN (w.debt, w.rest) > (shapes[w.o + 8], shapes[w.o + 9]) THEN shapes[w.o + 9]
                    ELSE w.rest END AS rest
            FROM owed AS w
            OFFSET 0
        ), charged AS (
            SELECT v.place, v.row, v.state, v.o, v.now, v.p,
                v.debt + shapes[v.o + 6] + (v.rest + shapes[v.o + 7]) / v.p AS debt,
                (v.rest + shapes[v.o + 7]) % v.p AS rest
            FROM viewed AS v
            OFFSET 0
        ), decided AS MATERIALIZED (
            SELECT c.*, (c.debt, c.rest) <= (shapes[c.o + 10], shapes[c.o + 11]) AS is_granted FROM charged AS c
        ), written AS (
            UPDATE public.throttle AS t
            SET state = ARRAY[1, d.now + d.debt, d.rest, d.p],
                expires_at = clock + least(latest - d.now, d.debt + (d.rest > 0)::integer) + shapes[d.o]
            FROM decided AS d WHERE d.is_granted AND t.ctid = d.row
        )
        SELECT d.place, ARRAY[d.is_granted::integer::bigint, d.now] || d.state FROM decided AS d;
        GET DIAGNOSTICS answered = ROW_COUNT;
    END IF;
    IF answered = cardinality(keys) THEN
        RETURN;
    END IF;

    FOR stored IN
        SELECT found.* FROM (
            SELECT asked.kind, asked.first, coalesce(asked.next, cardinality(actions) / 3) AS next, t.state, t.ctid
            FROM unnest(policies, keys, kinds, firsts, firsts[2:]) AS asked (policy, key, kind, first, next)
            LEFT JOIN public.throttle AS t ON t.policy = asked.policy AND t.key = decode(asked.key, 'hex')
            OFFSET 0
        ) AS found
        WHERE kind < 2 OR NOT public.throttle_is_bucket_1(found.state, shapes[actions[3 * first + 1] + 5])
    LOOP
        state := coalesce(stored.state, '{}');
        expires := NULL;
        FOR nth IN stored.first .. stored.next - 1 LOOP
            o := actions[3 * nth + 1];
            moment := CASE WHEN actions[3 * nth + 3] < 0 THEN clock ELSE actions[3 * nth + 3] END;
            done := public.throttle_any_rules_1(shapes, o, actions[3 * nth + 2], moment, state);
            place := nth + 1;
            answer := CASE WHEN done.granted IS NOT NULL THEN ARRAY[done.granted, moment] || done.reported END;
            RETURN NEXT;
            IF done.after IS NOT NULL THEN
                state := done.after;
                expires := clock + greatest(0, least(latest, done.expiry) - moment) + shapes[o];
            END IF;
        END LOOP;
        IF expires IS NOT NULL THEN
            UPDATE public.throttle AS t SET state = batch.state, expires_at = expires WHERE t.ctid = stored.ctid;
        END IF;
    END LOOP;
END $$;
