-- The table of states.
--
-- A row is what one key of one policy has used. Nothing that changes is indexed, and a page has room for a second version
-- of all its rows, as one batch may write them: an update leaves no dead index entry, and its page is pruned by the next
-- one. The table keeps its size without VACUUM.

CREATE TABLE IF NOT EXISTS public.throttle (
    policy text COLLATE "C" NOT NULL,
    -- The bytes of the key; of one longer than 200 bytes, '#' and its SHA-256 in hexadecimal.
    key bytea NOT NULL,
    -- Of each rule of the policy, by position, a tag and its numbers: see rules.sql.
    state bigint[] NOT NULL,
    -- When a sweep may remove the row, in microseconds since the Unix epoch by the clock of this server.
    expires_at bigint NOT NULL,
    PRIMARY KEY (policy, key)
) WITH (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

-- A sliding window log may be long, and its numbers hardly compress.
ALTER TABLE public.throttle ALTER COLUMN state SET STORAGE EXTERNAL;
