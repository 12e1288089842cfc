-- Removes expired rows from some pages of both tables, and says how many pages there are; nothing if another sweeps now.
--
-- It waits for nobody: rows that are locked, and so in use, are left. No index says when rows expire, because each update
-- would have to keep it up to date; the pages are walked instead.

CREATE OR REPLACE FUNCTION public.throttle_sweep_1(
    first_page bigint, pages bigint, OUT removed bigint, OUT all_pages bigint
)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $$
DECLARE
    clock CONSTANT bigint := extract(epoch FROM clock_timestamp()) * 1000000;
    first CONSTANT tid := format('(%s,0)', first_page);
    beyond CONSTANT tid := format('(%s,0)', first_page + pages);
    locks bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock('public.throttle'::regclass::oid::integer, 1416130632) THEN
        RETURN;
    END IF;
    DELETE FROM public.throttle WHERE ctid = ANY (ARRAY(
        SELECT t.ctid FROM public.throttle AS t
        WHERE t.ctid >= first AND t.ctid < beyond AND t.expires_at < clock
        FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS removed = ROW_COUNT;
    DELETE FROM public.throttle_locks WHERE ctid = ANY (ARRAY(
        SELECT l.ctid FROM public.throttle_locks AS l
        WHERE l.ctid >= first AND l.ctid < beyond AND l.expires_at < clock
        FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS locks = ROW_COUNT;
    removed := removed + locks;
    all_pages := greatest(pg_relation_size('public.throttle'::regclass), pg_relation_size('public.throttle_locks'::regclass))
        / current_setting('block_size')::bigint;
END $$;
