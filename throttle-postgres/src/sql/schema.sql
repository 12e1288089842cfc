-- Which version of the schema this is. All files here run in one transaction, and may run again.

DO $$ BEGIN
    IF to_regnamespace('public') IS NULL THEN
        CREATE SCHEMA public;
    END IF;
END $$;

CREATE TABLE IF NOT EXISTS public.throttle_schema (
    version integer PRIMARY KEY,
    -- Programs that know at least this version work with it.
    usable_by integer NOT NULL
);
