//! Pauses between attempts: growing, bounded, and not the same for everybody.

use std::time::Duration;

use crate::limits::{RETRY_FIRST, RETRY_LAST};

/// The pauses of one thing that is tried again.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure.
    pub fn next(&mut self) -> Duration {
        let pause = pause_after(self.failures, rand::random_range(0.5..1.0));
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// It worked: the next failure is a first one again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

fn pause_after(failures: u32, part: f64) -> Duration {
    let doubled = RETRY_FIRST.saturating_mul(2u32.saturating_pow(failures.min(31)));
    doubled.min(RETRY_LAST).mul_f64(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit_and_no_further() {
        let pauses: Vec<Duration> = (0..40).map(|failures| pause_after(failures, 1.0)).collect();
        assert_eq!(pauses[0], RETRY_FIRST);
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(*pauses.last().unwrap(), RETRY_LAST);
    }
}
