//! [`RetryBudget`]: retries are paid for by requests that succeed at once, so an outage is not multiplied.

use parking_lot::Mutex;

use super::error::RetryBudgetExhausted;
use super::tank::Tank;
use crate::{SetupError, Timestamp};

/// What a request that succeeds on its first attempt deposits.
pub const DEPOSIT: u32 = 1;
/// What a retry withdraws, unless said otherwise: one retry for ten successes.
pub const DEFAULT_RETRY_COST: u32 = 10;
/// The largest balance, unless said otherwise.
pub const DEFAULT_MAX_BALANCE: u32 = 1_000;
/// The first balance, unless said otherwise: ten retries.
pub const DEFAULT_INITIAL_BALANCE: u32 = 100;

const SECOND_MICROS: u64 = 1_000_000;

/// A balance that retries are paid from, shared by all that call the same service.
///
/// A request that succeeds on its first attempt deposits 1; a retry withdraws 10; a retry that succeeds deposits
/// nothing. So in the long run retries ≤ (initial balance + successes) / 10, and in a total outage only the balance
/// is spent. A retry that cannot be paid is refused at once: there is no queue, and first attempts are not concerned.
/// The rule is that of gRPC's retry throttling and of the AWS SDKs, with other numbers.
///
/// ```
/// use throttle_core::{Timestamp, retry::RetryBudget};
///
/// let budget = RetryBudget::builder().initial(10).build()?;
/// let now = Timestamp::from_micros(1_700_000_000_000_000)?;
/// budget.try_withdraw(now)?.spend();
/// assert!(budget.try_withdraw(now).is_err());
/// (0..10).for_each(|_| budget.record_success());
/// let withdrawal = budget.try_withdraw(now)?;
/// assert_eq!(budget.balance(now), 0);
/// drop(withdrawal);
/// assert_eq!(budget.balance(now), 10, "the retry was not made");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RetryBudget {
    tank: Mutex<Tank>,
    retry_cost: u32,
}

impl RetryBudget {
    /// Describes a budget; [`build`](RetryBudgetBuilder::build) makes it.
    pub const fn builder() -> RetryBudgetBuilder {
        RetryBudgetBuilder {
            initial: DEFAULT_INITIAL_BALANCE,
            max: DEFAULT_MAX_BALANCE,
            retry_cost: DEFAULT_RETRY_COST,
            drip_per_second: 0,
        }
    }

    /// Withdraws what one retry costs, in one step. Dropping the [`Withdrawal`] gives it back.
    ///
    /// # Errors
    ///
    /// [`RetryBudgetExhausted`] if the balance at `now` is less; nothing is withdrawn then.
    pub fn try_withdraw(&self, now: Timestamp) -> Result<Withdrawal<'_>, RetryBudgetExhausted> {
        if self.tank.lock().try_take(self.retry_cost, now) {
            Ok(Withdrawal { budget: Some(self) })
        } else {
            Err(RetryBudgetExhausted)
        }
    }

    /// Deposits 1, for a request that succeeded on its first attempt. Not for one that was retried.
    pub fn record_success(&self) {
        self.tank.lock().put(DEPOSIT);
    }

    /// The balance at `now`.
    #[must_use]
    pub fn balance(&self, now: Timestamp) -> u32 {
        self.tank.lock().level_at(now)
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget::builder().open()
    }
}

/// What one retry costs, taken out of a [`RetryBudget`]. Dropped without [`spend`](Self::spend), it goes back, so a
/// retry that is cancelled or refused before it is made costs nothing.
#[derive(Debug)]
#[must_use = "a withdrawal that is dropped goes back"]
pub struct Withdrawal<'a> {
    budget: Option<&'a RetryBudget>,
}

impl Withdrawal<'_> {
    /// The retry is being made: the withdrawal is final.
    pub fn spend(mut self) {
        self.budget = None;
    }
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if let Some(budget) = self.budget {
            budget.tank.lock().put(budget.retry_cost);
        }
    }
}

/// A [`RetryBudget`] that is being described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a description is not a budget until it is built"]
pub struct RetryBudgetBuilder {
    initial: u32,
    max: u32,
    retry_cost: u32,
    drip_per_second: u32,
}

impl RetryBudgetBuilder {
    /// The first balance. Default: [`DEFAULT_INITIAL_BALANCE`].
    pub const fn initial(mut self, balance: u32) -> Self {
        self.initial = balance;
        self
    }

    /// The largest balance; deposits above it are lost. Default: [`DEFAULT_MAX_BALANCE`].
    pub const fn max(mut self, balance: u32) -> Self {
        self.max = balance;
        self
    }

    /// What a retry costs, in successes. Default: [`DEFAULT_RETRY_COST`], which lets through one retry for ten
    /// successes; 1 lets through as many retries as successes.
    pub const fn retry_cost(mut self, cost: u32) -> Self {
        self.retry_cost = cost;
        self
    }

    /// What flows in per second whatever happens, from the first withdrawal on. Default: 0. More than 0 lets some
    /// retries through in a total outage too: one every `retry_cost / drip` seconds.
    pub const fn drip_per_second(mut self, units: u32) -> Self {
        self.drip_per_second = units;
        self
    }

    /// The budget described.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] if a retry costs nothing or more than the largest balance, or if the first balance is
    /// above the largest.
    pub fn build(self) -> Result<RetryBudget, SetupError> {
        if self.retry_cost == 0 || self.retry_cost > self.max {
            let reason = format!("must be 1 to {}, the largest balance, not {}", self.max, self.retry_cost);
            return Err(SetupError::Setting { setting: "retry_cost", reason });
        }
        if self.initial > self.max {
            let reason = format!("must be at most {}, the largest balance, not {}", self.max, self.initial);
            return Err(SetupError::Setting { setting: "initial", reason });
        }
        Ok(self.open())
    }

    fn open(self) -> RetryBudget {
        let tank = Tank::new(self.max, self.drip_per_second, SECOND_MICROS, self.initial);
        RetryBudget { tank: Mutex::new(tank), retry_cost: self.retry_cost }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at_secs(secs: u64) -> Timestamp {
        Timestamp::from_micros((1_700_000_000 + secs) * SECOND_MICROS).unwrap()
    }

    fn budget(initial: u32) -> RetryBudget {
        RetryBudget::builder().initial(initial).build().unwrap()
    }

    fn withdraw_all(budget: &RetryBudget, now: Timestamp) -> u32 {
        let mut count = 0;
        while let Ok(withdrawal) = budget.try_withdraw(now) {
            withdrawal.spend();
            count += 1;
        }
        count
    }

    #[test]
    fn o_100_a_quiet_interval_does_not_freeze_it() {
        let budget = budget(0);
        assert_eq!(withdraw_all(&budget, at_secs(0)), 0);
        (0..100).for_each(|_| budget.record_success());
        assert_eq!(withdraw_all(&budget, at_secs(10)), 10);
    }

    #[test]
    fn o_90_a_withdrawal_given_back_pays_for_another() {
        let (budget, now) = (budget(30), at_secs(0));
        let [first, second, third] = [(); 3].map(|()| budget.try_withdraw(now).unwrap());
        budget.try_withdraw(now).unwrap_err();
        drop(second);
        budget.try_withdraw(now).unwrap().spend();
        budget.try_withdraw(now).unwrap_err();
        first.spend();
        third.spend();
        assert_eq!(budget.balance(now), 0);
    }

    #[test]
    fn the_balance_stays_at_the_maximum() {
        let budget = budget(1_000);
        let withdrawal = budget.try_withdraw(at_secs(0)).unwrap();
        (0..50).for_each(|_| budget.record_success());
        drop(withdrawal);
        assert_eq!(budget.balance(at_secs(0)), 1_000);
    }

    #[test]
    fn a_drip_flows_from_the_first_withdrawal_on() {
        let budget = RetryBudget::builder().initial(0).max(30).drip_per_second(1).build().unwrap();
        assert_eq!(withdraw_all(&budget, at_secs(0)), 0);
        assert_eq!(withdraw_all(&budget, at_secs(9)), 0);
        assert_eq!(withdraw_all(&budget, at_secs(10)), 1);
        assert_eq!(withdraw_all(&budget, at_secs(5)), 0, "time that steps back brings nothing");
        assert_eq!(withdraw_all(&budget, at_secs(10_000)), 3, "the maximum");
    }

    #[test]
    fn settings_out_of_range_say_so() {
        let refused = |builder: RetryBudgetBuilder| match builder.build() {
            Err(SetupError::Setting { setting, .. }) => setting,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(RetryBudget::builder().retry_cost(0)), "retry_cost");
        assert_eq!(refused(RetryBudget::builder().retry_cost(1_001)), "retry_cost");
        assert_eq!(refused(RetryBudget::builder().initial(1_001)), "initial");
    }

    #[test]
    fn check_and_debit_are_one_step() {
        let (budget, now) = (budget(1_000), at_secs(0));
        let spent: u32 = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| withdraw_all(&budget, now)));
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(spent, 100);
    }

    proptest! {
        #[test]
        fn retries_stay_within_a_tenth_of_initial_and_successes(
            initial in 0_u32..=1_000, steps in prop::collection::vec(0_u8..4, 0..500),
        ) {
            let (budget, now) = (budget(initial), at_secs(0));
            let (mut successes, mut retries, mut held) = (0_u32, 0_u32, Vec::new());
            for step in steps {
                match step {
                    0 => { budget.record_success(); successes += 1; }
                    1 => held.extend(budget.try_withdraw(now).ok()),
                    2 => drop(held.pop()),
                    _ => if let Some(withdrawal) = held.pop() { withdrawal.spend(); retries += 1; },
                }
                prop_assert!(retries <= (initial + successes) / 10);
                prop_assert!(budget.balance(now) <= 1_000);
            }
        }
    }
}
