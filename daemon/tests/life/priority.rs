//! Which threads are in real time.

use super::SHORT;
use super::support::{Daemon, Place, within};
use std::fs;

/// `SCHED_RR` in field 41 of `/proc/PID/task/TID/stat`, counted from the state, which is the third.
const ROUND_ROBIN: &str = "2";

/// The scheduling policy of each thread whose name begins like this.
fn policies(daemon: &Daemon, name: &str) -> Vec<String> {
    let stats = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let stats = stats.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let policy = |stat: String| {
        let (comm, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        comm.starts_with(name).then(|| rest.split(' ').nth(41 - 3).unwrap_or_default().to_owned())
    };
    stats.filter_map(policy).collect()
}

/// A renewal that wdmd does not hear of in time is none: whoever tells it is as much in a hurry as whoever renews.
#[test]
fn whoever_renews_and_whoever_tells_wdmd_is_in_real_time_if_that_is_wanted() {
    for wanted in [0, 1] {
        let place = Place::new();
        fs::write(place.run_dir("a").with_extension("conf"), format!("high_priority = {wanted}\n")).unwrap();
        let daemon = Daemon::start(&place.run_dir("a"), "a");
        place.format(&daemon);
        place.join(&daemon, 1);
        let in_time = |name: &str| {
            let all = policies(&daemon, name);
            !all.is_empty() && all.iter().all(|policy| (policy == ROUND_ROBIN) == (wanted == 1))
        };
        for name in ["sanlock-wd", "sanlock-s1"] {
            assert!(
                within(SHORT, || in_time(name)),
                "{name}: {:?}, wanted {wanted}",
                policies(&daemon, name)
            );
        }
    }
}
