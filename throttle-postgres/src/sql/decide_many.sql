-- Decides a batch of actions: one statement, whatever is in it.
--
-- Row n of `policies`, `keys` (in hexadecimal), `kinds` and `firsts` is a key: what its actions are (0: they change
-- nothing, 1: they may, 2: it is one request of one bucket) and how many actions come before them. An action is three
-- numbers: where its shape begins (any_rules.sql), how many times it is asked, and when, or -1 for now. They are answered
-- by their position: granted, the time, and the states; or nothing if the stored state is not readable.
--
-- All rows are locked before the first is decided, in the order in which the keys came, whether they exist or not. What
-- happens then takes no other lock, and the time is read after the last one was got. All clients send keys in one order,
-- and so no two batches wait for each other.
--
-- Nobody waits for a row longer than `patience`, in milliseconds.
--
-- A table may grow from nothing while the plans in use were made, so the settings leave no plan but the index.

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
        ON CONFLICT (policy, key) DO UPDATE SET expires_at = t.expires_at WHERE false;
    END IF;
    clock := greatest(0, least(latest, extract(epoch FROM clock_timestamp()) * 1000000));

    -- Single requests of buckets, which most are, all at once.
    IF 2 = ANY (kinds) THEN
        RETURN QUERY SELECT many.* FROM public.throttle_decide_buckets_1(
            policies, keys, kinds, firsts, shapes, actions, patience) AS many;
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
