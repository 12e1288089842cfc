-- Acquires, extends and releases locks: one statement each.
--
-- What is compared and what is changed are one step, under the lock of the row, and the time is read when that was got.
-- Nobody waits for it longer than `patience`, in milliseconds.

-- Bounds the waits of this transaction, and has what it says be true after a crash, unless the server was told to promise
-- more than that anyway.
CREATE OR REPLACE FUNCTION public.throttle_be_sure_1(patience text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('lock_timeout', patience, true);
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION public.throttle_clock_1() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- The number of the acquisition, or nothing if somebody else has the lock, and then for how long, in microseconds, if
-- that is known without waiting.
--
-- A lock that is held is read and left alone: those who wait for it write nothing. Else its row is locked, whether it
-- exists or not, before it gets its number: numbers grow in the order in which the lock was entered.
CREATE OR REPLACE FUNCTION public.throttle_acquire_1(
    of_name bytea, of_owner uuid, ttl bigint, patience text, OUT number bigint, OUT expires_in bigint
)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $$
DECLARE
    clock bigint;
BEGIN
    SELECT l.expires_at INTO expires_in
    FROM public.throttle_locks AS l WHERE l.name = of_name AND l.owner <> of_owner;
    expires_in := expires_in - public.throttle_clock_1();
    IF expires_in > 0 THEN
        RETURN;
    END IF;
    expires_in := NULL;
    PERFORM public.throttle_be_sure_1(patience);
    INSERT INTO public.throttle_locks AS l (name, owner, fence, expires_at) VALUES (of_name, of_owner, 0, 0)
    ON CONFLICT (name) DO UPDATE SET fence = l.fence WHERE false;
    clock := public.throttle_clock_1();
    UPDATE public.throttle_locks AS l
    SET owner = of_owner,
        fence = CASE WHEN l.expires_at > clock THEN l.fence ELSE nextval('public.throttle_fences') END,
        expires_at = clock + ttl
    WHERE l.name = of_name AND (l.owner = of_owner OR l.expires_at <= clock)
    RETURNING l.fence INTO number;
END $$;

-- Whether it is held by `of_owner`, and now for `ttl` microseconds from now.
CREATE OR REPLACE FUNCTION public.throttle_extend_1(
    of_name bytea, of_owner uuid, ttl bigint, patience text
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $$
BEGIN
    PERFORM public.throttle_be_sure_1(patience);
    UPDATE public.throttle_locks AS l SET expires_at = public.throttle_clock_1() + ttl
    WHERE l.name = of_name AND l.owner = of_owner AND l.expires_at > public.throttle_clock_1();
    RETURN FOUND;
END $$;

-- Whether it was held by `of_owner` until now. What has expired is removed too, and was not.
CREATE OR REPLACE FUNCTION public.throttle_release_1(of_name bytea, of_owner uuid, patience text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $$
DECLARE
    was_held boolean;
BEGIN
    PERFORM public.throttle_be_sure_1(patience);
    DELETE FROM public.throttle_locks AS l WHERE l.name = of_name AND l.owner = of_owner
    RETURNING l.expires_at > public.throttle_clock_1() INTO was_held;
    RETURN coalesce(was_held, false);
END $$;
