//! How long a thread that waits for descriptors sleeps.

use nix::poll::PollTimeout;
use sanlock_blockio::drive::monotonic_now;
use sanlock_lease::timing::MonoTime;

/// Longest sleep: bounds what a lost wake-up could cost. Everything that ends a sleep has a descriptor or a time.
const NAP_MS: u64 = 30_000;

/// Until `wake`, or as long as a nap may be.
pub(crate) fn until(wake: Option<MonoTime>) -> PollTimeout {
    let nap = wake.map_or(NAP_MS, |wake| wake.millis_since(monotonic_now()).min(NAP_MS));
    PollTimeout::try_from(nap).unwrap_or(PollTimeout::ZERO)
}
