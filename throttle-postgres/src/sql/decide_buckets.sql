-- Decides single requests of buckets, one of each key: what any_rules.sql would answer, all at once and without the calls.
--
-- The arguments are those of a batch (decide_many.sql). Nothing is locked before it is written, and a denial writes
-- nothing. Rows are written in the order in which their keys came, each only if it is still the one that was read. A key
-- whose row is another by now, or is not there, or has no such state in it, is left alone and has no answer.
--
-- The arithmetic of rules.sql is here and in decide.sql again. Of the conformance suite the trials of `model` hold those
-- two to the kernels, `a_thousand_actions_are_answered_in_order` this, and `a_batch_is_answered_as_its_actions_alone` all
-- three to each other.
--
-- A table may grow from nothing while the plan in use was made, so each key looks for its row by itself (LATERAL), and
-- the setting leaves nothing but the index to find it with.

-- Whether it is no state, or that of a bucket whose ticks are 1/p µs.
CREATE OR REPLACE FUNCTION public.throttle_is_bucket_1(state bigint[], p bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT cardinality(state) = 0 OR (cardinality(state) = 4 AND state[1] = 1 AND state[4] = p
        AND state[2] >= 0 AND state[3] >= 0 AND state[3] < state[4]) IS TRUE
$$;

CREATE OR REPLACE FUNCTION public.throttle_decide_buckets_1(
    policies text[], keys text[], kinds integer[], firsts integer[], shapes bigint[], actions bigint[],
    patience integer
) RETURNS TABLE (place integer, answer bigint[])
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $$
DECLARE
    latest CONSTANT bigint := 4503599627370495;
BEGIN
    PERFORM set_config('lock_timeout', patience::text, true);
    RETURN QUERY
    WITH present AS MATERIALIZED (
        -- Read when it is first looked at: after all that the rows may have been written by.
        SELECT greatest(0, least(latest, extract(epoch FROM clock_timestamp()) * 1000000))::bigint AS clock
    ), found AS (
        SELECT asked.first + 1 AS place, t.row, t.state, actions[3 * asked.first + 1]::integer AS o,
            actions[3 * asked.first + 3] AS moment
        FROM unnest(policies, keys, kinds, firsts) AS asked (policy, key, kind, first)
        CROSS JOIN LATERAL (
            SELECT t.ctid AS row, t.state FROM public.throttle AS t
            WHERE t.policy = asked.policy AND t.key = decode(asked.key, 'hex')
            OFFSET 0
        ) AS t
        WHERE asked.kind = 2
        OFFSET 0
    ), asked AS (
        SELECT f.*, shapes[f.o + 5] AS p,
            CASE WHEN f.moment < 0 THEN (SELECT clock FROM present) ELSE f.moment END AS now
        FROM found AS f
        WHERE public.throttle_is_bucket_1(f.state, shapes[f.o + 5])
        OFFSET 0
    ), owed AS (
        SELECT a.*, coalesce(a.state[2] - a.now, 0) AS debt, coalesce(a.state[3], 0) AS rest FROM asked AS a OFFSET 0
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
        ORDER BY c.place
    ), written AS (
        UPDATE public.throttle AS t
        SET state = ARRAY[1, d.now + d.debt, d.rest, d.p],
            expires_at = (SELECT clock FROM present) + shapes[d.o]
                + least(latest - d.now, d.debt + (d.rest > 0)::integer)
        FROM decided AS d WHERE d.is_granted AND t.ctid = d.row
        RETURNING d.place, d.now, d.state
    )
    SELECT w.place, ARRAY[1, w.now] || w.state FROM written AS w
    UNION ALL
    SELECT d.place, ARRAY[0, d.now] || d.state FROM decided AS d WHERE NOT d.is_granted;
END $$;
