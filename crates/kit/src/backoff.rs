//! How long to wait after the n-th failure in a row: exponential, capped, with jitter. A formula, not a timer.

use std::time::Duration;

/// Half of the delay is certain, the other half is spread, so that many objects that failed together do not come
/// back together.
const JITTER_SHARE: f64 = 0.5;

/// The doublings after which any delay has reached any cap. Keeps the exponent in range.
const DOUBLINGS_MAX: u32 = 32;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Before the first retry.
    pub base: Duration,
    /// However often it failed.
    pub cap: Duration,
}

impl Backoff {
    /// The delay after `failures` failures in a row (1 is the first), with `spread` in 0..1 choosing the jitter.
    /// Never more than the cap, never less than half the base.
    pub fn delay(&self, failures: u32, spread: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(DOUBLINGS_MAX);
        let full = self
            .base
            .saturating_mul(2_u32.saturating_pow(doublings))
            .min(self.cap);
        let spread = if spread.is_finite() {
            spread.clamp(0.0, 1.0)
        } else {
            1.0
        };
        full.mul_f64(1.0 - JITTER_SHARE + JITTER_SHARE * spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        base: Duration::from_secs(1),
        cap: Duration::from_secs(60),
    };

    #[test]
    fn doubles_up_to_its_cap() {
        let table = [
            (0, 1),
            (1, 1),
            (2, 2),
            (3, 4),
            (6, 32),
            (7, 60),
            (8, 60),
            (1_000, 60),
            (u32::MAX, 60),
        ];
        for (failures, seconds) in table {
            assert_eq!(
                BACKOFF.delay(failures, 1.0),
                Duration::from_secs(seconds),
                "after {failures} failures"
            );
        }
    }

    #[test]
    fn jitter_takes_off_at_most_half_whatever_it_is_given() {
        for spread in [-3.0, 0.0, 0.3, 0.999, 1.0, 7.0, f64::NAN, f64::INFINITY] {
            let delay = BACKOFF.delay(3, spread);
            assert!(
                delay >= Duration::from_secs(2) && delay <= Duration::from_secs(4),
                "{spread} gave {delay:?}"
            );
        }
    }
}
