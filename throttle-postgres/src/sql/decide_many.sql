-- Decides a batch of actions: one statement, whatever is in it.
--
-- Row n of `policies`, `keys` (in hexadecimal), `counts` and `writes` is a key, how many of the actions are on it, and
-- whether one of them may change it. An action is three numbers: where its shape begins (any_rules.sql), how many times
-- it is asked, and when, or -1 for now. They are answered by their position, those on one key in order.
--
-- All rows are locked before the first is decided, in the order of their keys, whether they exist or not: no two batches
-- wait for each other. What happens then takes no other lock, and the time is read after the last one was got.
--
-- Nobody waits for a row longer than `patience`, in milliseconds.
--
-- A table may grow from nothing while the plans in use were made, so the settings leave no plan but the index.

CREATE OR REPLACE FUNCTION public.throttle_decide_many_1(
    policies text[], keys text[], counts integer[], writes boolean[], shapes bigint[], actions bigint[],
    patience integer
) RETURNS TABLE (place integer, granted bigint, now bigint, states bigint[])
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
<<batch>>
DECLARE
    stored record;
    rows tid[];
    tats bigint[];
    rests bigint[];
    denominators bigint[];
    expiries bigint[];
    o integer;
    times bigint;
    -- variables.sql
BEGIN
    PERFORM set_config('lock_timeout', patience::text, true);
    IF true = ANY (writes) THEN
        INSERT INTO public.throttle AS t (policy, key, state, expires_at)
        SELECT asked.policy, decode(asked.key, 'hex'), '{}', 0
        FROM unnest(policies, keys, writes) AS asked (policy, key, writes)
        WHERE asked.writes
        ORDER BY asked.policy COLLATE "C", asked.key COLLATE "C"
        ON CONFLICT (policy, key) DO UPDATE SET expires_at = t.expires_at WHERE false;
    END IF;

    clock := greatest(0, least(latest, extract(epoch FROM clock_timestamp()) * 1000000));
    place := 0;
    FOR stored IN
        SELECT asked.count, t.state, t.ctid
        FROM unnest(policies, keys, counts) AS asked (policy, key, count)
        LEFT JOIN public.throttle AS t ON t.policy = asked.policy AND t.key = decode(asked.key, 'hex')
    LOOP
        state := coalesce(stored.state, '{}');
        expires := NULL;
        FOR nth IN 1 .. stored.count LOOP
            o := actions[3 * place + 1];
            times := actions[3 * place + 2];
            now := actions[3 * place + 3];
            place := place + 1;
            -- action.sql
            RETURN NEXT;
        END LOOP;
        IF expires IS NULL THEN
            CONTINUE;
        ELSIF cardinality(state) = 4 AND state[1] = 1 THEN
            rows := rows || stored.ctid;
            tats := tats || state[2];
            rests := rests || state[3];
            denominators := denominators || state[4];
            expiries := expiries || expires;
        ELSE
            UPDATE public.throttle AS t SET state = batch.state, expires_at = expires WHERE t.ctid = stored.ctid;
        END IF;
    END LOOP;
    -- Buckets, which most rules are, all at once.
    IF cardinality(rows) > 0 THEN
        UPDATE public.throttle AS t
        SET state = ARRAY[1, done.tat, done.rest, done.denominator], expires_at = done.expires
        FROM unnest(rows, tats, rests, denominators, expiries) AS done (row, tat, rest, denominator, expires)
        WHERE t.ctid = done.row;
    END IF;
END $$;
