-- Decides one action. A row that is there and free takes no more than it must; the others take the way of a batch.

CREATE OR REPLACE FUNCTION public.throttle_decide_1(
    policies text[], keys text[], shapes bigint[], times bigint, INOUT now bigint, patience integer,
    OUT place integer, OUT granted bigint, OUT states bigint[]
)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $$
<<batch>>
DECLARE
    o CONSTANT integer := 1;
    row tid;
    -- variables.sql
BEGIN
    SELECT t.state, t.ctid INTO state, row
    FROM public.throttle AS t WHERE t.policy = policies[1] AND t.key = decode(keys[1], 'hex')
    FOR UPDATE SKIP LOCKED;
    IF row IS NULL THEN
        SELECT many.place, many.granted, many.now, many.states
        INTO place, granted, now, states
        FROM public.throttle_decide_many_1(
            policies, keys, '{1}', '{t}', shapes, ARRAY[1, times, now], patience) AS many;
        RETURN;
    END IF;
    clock := greatest(0, least(latest, extract(epoch FROM clock_timestamp()) * 1000000));
    place := 1;
    -- action.sql
    IF expires IS NOT NULL THEN
        UPDATE public.throttle AS t SET state = batch.state, expires_at = expires WHERE t.ctid = row;
    END IF;
END $$;
