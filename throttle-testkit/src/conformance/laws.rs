//! The laws of the decision semantics, each as a property. None of them asks the definition: they hold by themselves.

mod bounds;
mod exact;
mod time;
mod unchanged;

use std::sync::Arc;

use throttle_core::{Policy, StoreBackend};

use self::bounds::{
    law_4_a_bucket_admits_what_its_rate_allows, law_4_retrying_as_advised_gets_exactly_the_rate,
    the_three_buckets_decide_alike,
};
use self::exact::{
    law_2_retry_after_is_exact, law_3_reset_after_is_exact, law_5_rules_answer_for_themselves,
};
use self::time::{
    law_7_a_step_back_delays_no_more_than_owed, law_7_a_step_back_on_a_full_key_admits_nothing,
};
use self::unchanged::{
    law_1_denials_probes_and_peeks_change_nothing, law_5_all_rules_are_charged_or_none,
    law_6_more_than_the_capacity_is_never_stored, refund_never_lifts_a_key_above_full,
};
use super::check::{Checked, ensure};
use super::group::{Case, Group, properties};
use super::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    properties!(Group::new(variant, "laws");
        law_1_denials_probes_and_peeks_change_nothing,
        law_2_retry_after_is_exact,
        law_3_reset_after_is_exact,
        law_4_a_bucket_admits_what_its_rate_allows,
        law_4_retrying_as_advised_gets_exactly_the_rate,
        law_5_all_rules_are_charged_or_none,
        law_5_rules_answer_for_themselves,
        law_6_more_than_the_capacity_is_never_stored,
        law_7_a_step_back_on_a_full_key_admits_nothing,
        law_7_a_step_back_delays_no_more_than_owed,
        refund_never_lifts_a_key_above_full,
        the_three_buckets_decide_alike,
    )
    .into_cases()
}

/// `condition` must hold under `policy`.
fn hold(policy: &Policy, condition: bool, message: impl FnOnce() -> String) -> Checked {
    ensure(condition, || format!("{policy:?}: {}", message()))
}
