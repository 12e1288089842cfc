use std::time::Duration;
use throttle_core::kernel::{PolicyState, decide};
use throttle_core::*;
use serde_json::Value;

#[test]
fn all() {
    let text = std::fs::read_to_string("/work/shared/semantics/vectors.jsonl").unwrap();
    let (mut ok, mut bad) = (0, 0);
    for line in text.lines() {
        let v: Value = serde_json::from_str(line).unwrap();
        let rules: Vec<Rule> = v["rules"].as_array().unwrap().iter().map(|r| {
            let mut q = Quota::per(r["limit"].as_u64().unwrap() as u32, Duration::from_micros(r["period_us"].as_u64().unwrap()));
            if let Some(b) = r["burst"].as_u64() { q = q.burst(b as u32); }
            let rule = Rule::new(r["algorithm"].as_str().unwrap().parse().unwrap(), q).unwrap();
            match r["max_queue_us"].as_u64().unwrap() { 0 => rule, w => rule.max_queue(Duration::from_micros(w)).unwrap() }
        }).collect();
        let policy = Policy::new("v", rules).unwrap();
        let mut st = PolicyState::fresh(&policy);
        for (i, s) in v["steps"].as_array().unwrap().iter().enumerate() {
            let a = match s["op"].as_str().unwrap() { "consume" => Action::consume(&policy, "k"), "peek" => Action::peek(&policy, "k"), _ => Action::refund(&policy, "k") };
            let a = a.with_cost(s["cost"].as_u64().unwrap() as u32).with_max_wait(Duration::from_micros(s["max_wait_us"].as_u64().unwrap()));
            let now = Timestamp::from_micros(s["now_us"].as_u64().unwrap()).unwrap();
            let d = if a.is_hopeless() { Decision::never(policy.capacity()) } else { let before = st.clone(); let o = decide(&a, now, &mut st);
                if !o.changes_state(&a) { assert_eq!(before, st); }
                Decision::of(&a, &o, 0) };
            let e = &s["expect"];
            let got = (d.is_allowed(), d.is_never(), d.delay().as_micros() as u64, d.retry_after().map(|r| r.as_micros() as u64));
            let want = (e["allowed"].as_bool().unwrap(), e["never"].as_bool().unwrap(), e["delay_us"].as_u64().unwrap(), if e["allowed"].as_bool().unwrap() {None} else {e["retry_after_us"].as_u64()});
            let mut good = got == want;
            if !d.is_never() { good &= d.remaining() as u64 == e["remaining"].as_u64().unwrap() && d.reset_after().as_micros() as u64 == e["reset_after_us"].as_u64().unwrap(); }
            if good { ok += 1 } else { bad += 1; println!("{} {i}: {a:?} {d:?} want {e}", v["id"]); }
        }
    }
    println!("{ok} passed, {bad} failed");
    assert_eq!(bad, 0);
}
