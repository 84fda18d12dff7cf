//! Who gets how much of what all want.

/// The least part of its fair share that a host must get among hosts of our own, in percent.
pub const LEAST_OURS: u64 = 50;
/// The same where hosts of both programs fight.
pub const LEAST_MIXED: u64 = 20;
/// The least part that a single host of the original must get where many processes fight for one lease. It sleeps a second whenever it meets an
/// owner that its last look showed as silent; how often that is depends on when the two renew, so for a whole run it may be much rarer
/// served than its neighbour, among its own kind too.
pub const LEAST_REFERENCE: u64 = 5;
/// The least part that the hosts of the original must get together beside hosts of ours. Two of them had 39 when one slept most of the time, as above.
pub const LEAST_REFERENCES: u64 = 30;

/// The parts of a fair share that each host got, in percent.
///
/// # Panics
/// When there is nothing to share.
#[must_use]
pub fn shares(granted: &[u64]) -> Vec<u64> {
    let total: u64 = granted.iter().sum();
    assert!(total > 0, "nothing was granted");
    granted.iter().map(|own| own * 100 * granted.len() as u64 / total).collect()
}

/// Asserts that nobody got less than `least` percent of its fair share.
///
/// # Panics
/// When somebody did.
pub fn assert_nobody_starved(granted: &[u64], least: u64) {
    let shares = shares(granted);
    assert!(
        shares.iter().all(|share| *share >= least),
        "a host starved: granted {granted:?}, {shares:?} % of a fair share, at least {least} % wanted"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_part_of_the_average() {
        assert_eq!(shares(&[50, 100, 150]), [50, 100, 150]);
        assert_nobody_starved(&[50, 100, 150], 50);
    }

    #[test]
    #[should_panic(expected = "a host starved")]
    fn less_than_the_least_is_noticed() {
        assert_nobody_starved(&[49, 101, 150], 50);
    }
}
