-- `kernel/decide.rs`: one action on the states of one key, for any rules.
--
-- The action is the shape at `o`: the margin, operand (0 consume, 1 peek, 2 refund), cost, number
-- of rules, and the rules. `granted` is nothing if the states are not readable; `after` is nothing if they stay.

CREATE OR REPLACE FUNCTION public.throttle_any_rules_1(
    shapes bigint[], o integer, times bigint, now bigint, states bigint[],
    OUT granted bigint, OUT reported bigint[], OUT after bigint[], OUT expiry bigint
)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    refund CONSTANT boolean := shapes[o + 1] = 2;
    cost CONSTANT bigint := shapes[o + 2];
    rules CONSTANT integer := shapes[o + 3];
    -- Where the rules begin, and the states, and how long these are.
    at integer[];
    begins integer[];
    lengths integer[];
    -- The views, one slice after the other, and where each begins.
    views bigint[];
    seen integer[];
    view bigint[];
    charged bigint;
    position integer := 1;
    length integer;
    part bigint[];
BEGIN
    WHILE position <= cardinality(states) LOOP
        length := public.throttle_length_1(states, position);
        begins := begins || position;
        lengths := lengths || length;
        position := position + length;
    END LOOP;
    IF position IS DISTINCT FROM cardinality(states) + 1 OR cardinality(lengths) > 16 THEN
        RETURN;
    END IF;

    granted := CASE WHEN refund THEN 1 ELSE times END;
    position := o + 4;
    FOR rule IN 1 .. rules LOOP
        at := at || position;
        view := public.throttle_view_1(shapes, position, states, begins[rule], now);
        seen := seen || coalesce(cardinality(views), 0) + 1;
        views := views || view;
        IF NOT refund THEN
            granted := public.throttle_room_1(shapes, position, view, cost, granted);
        END IF;
        position := position + CASE shapes[position] WHEN 1 THEN 8 WHEN 3 THEN 5 ELSE 3 END;
    END LOOP;
    seen := seen || cardinality(views) + 1;

    charged := CASE shapes[o + 1] WHEN 0 THEN granted WHEN 1 THEN 0 ELSE -1 END;
    IF charged * cost <> 0 OR refund THEN
        expiry := 0;
        FOR rule IN 1 .. rules LOOP
            view := views[seen[rule] : seen[rule + 1] - 1];
            part := public.throttle_after_1(shapes, at[rule], states, begins[rule], view, cost, charged, now);
            expiry := greatest(expiry, public.throttle_expiry_1(part));
            after := after || part;
        END LOOP;
    END IF;
    FOR rule IN 1 .. rules LOOP
        IF NOT refund THEN
            view := views[seen[rule] : seen[rule + 1] - 1];
            part := public.throttle_report_1(
                shapes, at[rule], states, begins[rule], lengths[rule], view, cost, charged, now);
            reported := reported || part;
        END IF;
    END LOOP;
    IF refund THEN
        position := 1;
        FOR rule IN 1 .. rules LOOP
            length := public.throttle_length_1(after, position);
            view := public.throttle_view_1(shapes, at[rule], after, position, now);
            part := public.throttle_report_1(shapes, at[rule], after, position, length, view, cost, 0, now);
            reported := reported || part;
            position := position + length;
        END LOOP;
    END IF;
END $$;
