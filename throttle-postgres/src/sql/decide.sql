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

CREATE OR REPLACE FUNCTION public.throttle_decide_1(
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
    latest CONSTANT bigint := 4503599627370495;
    clock bigint;
    stored record;
    shape integer := 0;
    o integer;
    times bigint;
    simple boolean;
    p bigint;
    each bigint;
    each_rest bigint;
    most bigint;
    most_rest bigint;
    room bigint;
    room_rest bigint;
    debt bigint;
    rest bigint;
    state bigint[];
    after bigint[];
    expiry bigint;
    expires bigint;
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
            IF now < 0 THEN
                now := clock;
            END IF;
            IF o <> shape THEN
                shape := o;
                simple := shapes[o] = 1;
                p := shapes[o + 6];
                each := shapes[o + 7];
                each_rest := shapes[o + 8];
                most := shapes[o + 9];
                most_rest := shapes[o + 10];
                room := shapes[o + 11];
                room_rest := shapes[o + 12];
            END IF;
            after := NULL;
            -- One bucket that is charged, on the state of one: what any_rules.sql would answer, without the calls.
            IF simple AND times = 1 AND cardinality(state) = 0 THEN
                debt := 0;
                rest := 0;
            ELSIF simple AND times = 1 AND cardinality(state) = 4 AND state[1] = 1
                AND state[2] >= 0 AND state[3] >= 0 AND state[3] < state[4] THEN
                debt := state[2] - now;
                rest := state[3];
                IF rest > 0 AND state[4] <> p THEN
                    debt := debt + 1;
                    rest := 0;
                END IF;
                IF debt < 0 THEN
                    debt := 0;
                    rest := 0;
                ELSIF debt > most OR debt = most AND rest > most_rest THEN
                    debt := most;
                    rest := most_rest;
                END IF;
            ELSE
                SELECT done.granted, done.reported, done.after, done.expiry
                INTO granted, states, after, expiry
                FROM public.throttle_any_rules_1(shapes, o, times, now, state) AS done;
                debt := NULL;
            END IF;
            IF debt IS NOT NULL THEN
                states := state;
                granted := 0;
                debt := debt + each;
                rest := rest + each_rest;
                IF rest >= p THEN
                    debt := debt + 1;
                    rest := rest - p;
                END IF;
                IF debt < room OR debt = room AND rest <= room_rest THEN
                    granted := 1;
                    expiry := now + debt + (rest > 0)::integer;
                    after := ARRAY[1, now + debt, rest, p];
                END IF;
            END IF;
            IF after IS NOT NULL THEN
                state := after;
                expires := clock + greatest(0, least(latest, expiry) - now) + shapes[o + 1];
            END IF;
            RETURN NEXT;
        END LOOP;
        IF expires IS NOT NULL THEN
            UPDATE public.throttle AS t SET state = batch.state, expires_at = expires WHERE t.ctid = stored.ctid;
        END IF;
    END LOOP;
END $$;
