-- One action on `state`, which it may change: the part that both functions have in common.
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
