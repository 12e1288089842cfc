//! The suite can fail: each backend here gets one thing wrong, and the trials named beside it must say so.
#![expect(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::time::Duration;

use backend::{Mistake, suite};
use throttle_core::StoreBackend;
use throttle_testkit::Conformance;
use throttle_testkit::conformance::Verdict;

mod backend;
mod lock;
mod mute;

/// Runs the named trials on a backend that is wrong, and returns those that did not fail.
fn missed<'a, B: StoreBackend>(suite: Conformance<B>, trials: &[&'a str]) -> Vec<&'a str> {
    let suite = suite.cases(200).deadline(Duration::from_secs(5));
    let is_meant = |name: &str| trials.iter().any(|trial| name == format!("wrong::{trial}"));
    let verdicts = suite.verdicts(is_meant);
    assert_eq!(verdicts.len(), trials.len(), "{trials:?} names a trial that is not there");
    let failed = |trial: &&str| {
        verdicts.iter().any(
            |verdict| matches!(verdict, Verdict::Failed { name, .. } if *name == format!("wrong::{trial}")),
        )
    };
    trials.iter().copied().filter(|trial| !failed(trial)).collect()
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let verdicts = suite("right", Mistake::None).verdicts(|_| true);
    assert!(verdicts.len() > 140, "{} trials", verdicts.len());
    let others: Vec<_> = verdicts.iter().filter(|verdict| !matches!(verdict, Verdict::Passed(_))).collect();
    assert_eq!(others, Vec::<&Verdict>::new(), "nothing fails, and nothing is left out");
}

#[test]
fn nothing_is_found_where_no_lock_is_wrong() {
    let verdicts = lock::suite("right", lock::Mistake::None).verdicts(|name| name.contains("::locks::"));
    assert!(verdicts.len() > 50, "{} trials", verdicts.len());
    let failed: Vec<_> =
        verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Failed { .. })).collect();
    assert_eq!(failed, Vec::<&Verdict>::new());
}

#[test]
fn an_error_that_says_nothing() {
    let trials = ["mute::errors::samples_say_what_they_are", "mute::errors::decide_is_wrapped"];
    let verdicts = mute::suite().verdicts(|name| trials.contains(&name));
    let failed = |verdict: &Verdict| matches!(verdict, Verdict::Failed { .. });
    assert!(verdicts.len() == 2 && verdicts.iter().all(failed), "{verdicts:?}");
}

macro_rules! catches {
    (in $subject:ident: $($test:ident: $mistake:ident => [$($trial:literal),+ $(,)?];)+) => {$(
        #[test]
        fn $test() {
            let suite = $subject::suite("wrong", $subject::Mistake::$mistake);
            assert_eq!(missed(suite, &[$($trial),+]), Vec::<&str>::new(), "these passed");
        }
    )+};
}

catches! {
    in backend:
    charging_rules_that_another_denied: ChargesOtherRules => [
        "laws::law_5_all_rules_are_charged_or_none", "laws::law_1_denials_probes_and_peeks_change_nothing",
        "cases::o_63_losers_of_one_limit_do_not_pay_the_other", "concurrency::all_rules_are_charged_or_none",
        "fixtures::two_rules", "model::any_history_is_answered_as_defined",
    ];
    counting_denials: CountsDenials => [
        "laws::law_1_denials_probes_and_peeks_change_nothing", "fixtures::token_bucket", "fixtures::fixed_window",
        "vectors::part_1_of_8", "model::any_history_is_answered_as_defined",
    ];
    cutting_keys: CutsKeys => [
        "keys::hostile_keys_work_and_are_distinct", "keys::o_65_long_keys_are_not_cut",
    ];
    dropping_fractions: DropsFractions => [
        "cases::a_billion_requests_do_not_drift", "laws::law_4_retrying_as_advised_gets_exactly_the_rate",
        "vectors::part_1_of_8", "model::any_history_is_answered_as_defined",
    ];
    expiring_early: ExpiresEarly => ["expiry::law_8_times_to_live_of_every_algorithm"];
    the_first_configuration_wins: FirstConfigurationWins => [
        "model::a_policy_may_change_at_any_time", "cases::o_52_the_code_wins_over_what_is_stored",
        "cases::o_54_each_change_is_in_force_at_the_next_call",
        "cases::o_32_a_limit_lowered_below_usage_says_how_long",
    ];
    forgetting_on_a_step_back: ForgetsOnStepBack => [
        "laws::law_7_a_step_back_on_a_full_key_admits_nothing", "cases::o_48_a_slower_host_mints_no_tokens",
        "concurrency::callers_with_clocks_apart_gain_nothing", "model::any_history_is_answered_as_defined",
    ];
    hanging_once_abandoned: HangsOnceAbandoned => ["cancellation::a_dropped_decision_is_charged_or_not"];
    ignoring_the_queue: IgnoresMaxWait => [
        "fixtures::leaky_bucket_with_a_queue", "concurrency::a_queue_gives_each_caller_a_place_of_its_own",
        "cases::o_41_taking_from_a_debt_takes_nothing", "model::any_history_is_answered_as_defined",
    ];
    ignoring_times: IgnoresTimes => [
        "model::several_requests_at_once_are_as_many_single_ones",
        "cases::o_09_a_log_takes_ten_thousand_at_once", "concurrency::o_74_four_hundred_callers_get_a_thousand_tokens",
    ];
    joining_names: JoinsNames => ["keys::policies_that_share_a_prefix_are_distinct"];
    keeping_milliseconds: KeepsMilliseconds => [
        "cases::o_02_times_keep_every_digit", "cases::o_08_the_announced_wait_is_enough_and_not_too_much",
        "laws::law_2_retry_after_is_exact", "laws::law_3_reset_after_is_exact",
    ];
    never_expiring: NeverExpires => [
        "expiry::law_8_states_go_by_themselves", "expiry::law_8_times_to_live_of_every_algorithm",
        "expiry::o_19_ten_thousand_keys_are_gone", "expiry::o_11_a_first_cost_above_one_expires",
    ];
    reading_and_writing_apart: NotAtomic => [
        "concurrency::one_key_admits_exactly_its_capacity", "concurrency::o_78_check_and_write_are_one",
        "concurrency::o_78_a_fresh_key_admits_one", "concurrency::refunds_are_not_lost",
    ];
    charging_for_a_peek: PeekCharges => [
        "laws::law_1_denials_probes_and_peeks_change_nothing", "laws::law_2_retry_after_is_exact",
        "laws::law_3_reset_after_is_exact", "model::any_history_is_answered_as_defined",
    ];
    refunding_above_full: RefundsAboveFull => [
        "cases::o_39_a_refund_works_on_an_empty_key", "model::any_history_is_answered_as_defined",
    ];
    resetting_by_prefix: ResetsByPrefix => [
        "reset::resetting_a_policy_forgets_all_its_keys_and_no_others",
        "reset::resetting_a_policy_finds_hostile_keys_too",
    ];
    resetting_nothing: ResetsNothing => [
        "reset::a_reset_key_is_as_good_as_new", "reset::o_62_a_reset_forgets_the_previous_window_too",
        "reset::a_reset_says_whether_there_was_anything",
    ];
    reversing_batches: ReversesBatches => [
        "batch::one_key_is_decided_in_order", "batch::a_batch_is_answered_as_its_actions_alone",
        "batch::a_thousand_actions_are_answered_in_order",
    ];
    standing_still: StandsStill => ["concurrency::own_clock_does_not_step_back", "fixtures::token_bucket"];
    storing_probes: StoresProbes => [
        "expiry::law_1_what_changes_nothing_stores_nothing", "cases::o_42_a_cost_of_zero_writes_nothing",
    ];
}

catches! {
    in lock:
    looking_and_setting_apart: LooksThenSets => [
        "locks::thirty_two_contenders_exclude_each_other", "locks::of_many_at_once_one_gets_it",
        "locks::any_history_is_that_of_a_lock",
    ];
    freeing_the_lock_of_another: FreesAnyones => [
        "locks::o_89_who_is_late_frees_nobodys_lock", "locks::who_is_not_the_holder_changes_nothing",
        "locks::a_lost_reply_to_a_release_frees_no_later_holder", "locks::any_history_is_that_of_a_lock",
        "locks::o_89_a_late_release_says_that_the_lock_was_lost",
    ];
    extending_what_has_expired: ExtendsWhatIsOver => [
        "locks::what_has_expired_cannot_be_extended", "locks::any_history_with_expiry_is_that_of_a_lock",
    ];
    extending_the_lock_of_another: ExtendsAnyones => [
        "locks::o_88_extending_after_others_had_it_is_refused", "locks::who_is_not_the_holder_changes_nothing",
        "locks::any_history_is_that_of_a_lock",
    ];
    numbering_from_one: NumbersFromOne => [
        "locks::fences_grow_from_holder_to_holder", "locks::fences_grow_past_what_has_expired",
        "locks::o_87_a_holder_that_was_blocked_has_the_lower_fence", "locks::any_history_is_that_of_a_lock",
    ];
    numbers_that_stand_still: NumbersStandStill => [
        "locks::thirty_two_contenders_exclude_each_other", "locks::an_owner_that_comes_back_is_a_new_acquisition",
    ];
    not_knowing_its_holder: RefusesItsHolder => [
        "locks::who_asks_again_has_what_it_had", "locks::a_lost_reply_to_an_acquisition_is_found_again",
        "locks::any_history_is_that_of_a_lock",
    ];
    numbering_who_asks_again: NumbersRetries => [
        "locks::who_asks_again_has_what_it_had", "locks::one_owner_asking_many_times_at_once_has_one_fence",
        "locks::any_history_is_that_of_a_lock",
    ];
    leaving_the_old_time: KeepsTheOldTime => ["locks::who_asks_again_has_the_whole_time_anew"];
    locks_that_never_expire: ExpiresNever => [
        "locks::a_lock_expires_when_its_time_has_passed_and_not_before", "locks::the_shortest_time_to_live_is_one",
        "locks::any_history_with_expiry_is_that_of_a_lock",
    ];
    locks_that_expire_early: ExpiresEarly => [
        "locks::a_lock_expires_when_its_time_has_passed_and_not_before",
        "locks::an_extended_lock_is_held_from_then_on", "locks::any_history_with_expiry_is_that_of_a_lock",
    ];
    cutting_names_of_locks: CutsNames => ["locks::long_names_are_not_cut"];
    folding_the_case_of_names: FoldsCase => ["locks::hostile_names_work_and_are_distinct"];
    freeing_locks_on_reset: FreesOnReset => ["locks::locks_and_keys_are_apart"];
}
