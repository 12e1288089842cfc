-- The table of locks.
--
-- A row is a lock that is held, or that nobody has freed and the sweep has not reached; whoever wants it takes it over. A
-- release removes it. Nothing that an extension changes is indexed, and a page has room for new versions of its rows.
-- It is logged, whatever the table of states is: a lock outlives a crash of the server.

CREATE TABLE IF NOT EXISTS public.throttle_locks (
    -- The bytes of the name; of one longer than 200 bytes, '#' and its SHA-256 in hexadecimal.
    name bytea PRIMARY KEY,
    -- Who holds it: an owner is one acquisition.
    owner uuid NOT NULL,
    -- The number of the acquisition.
    fence bigint NOT NULL CHECK (fence >= 0),
    -- When it is free, in microseconds since the Unix epoch by the clock of this server.
    expires_at bigint NOT NULL
) WITH (fillfactor = 50);

-- The numbers of all locks come from one sequence, so nothing is kept of a lock that is free. It begins at the present
-- microsecond: one that was dropped and made again goes on above its old numbers.
DO $$ BEGIN
    IF to_regclass('public.throttle_fences') IS NULL THEN
        CREATE SEQUENCE public.throttle_fences;
        PERFORM setval('public.throttle_fences', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    END IF;
END $$;
