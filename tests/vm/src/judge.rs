//! Judges a timeline: what happened when, in which order, and whether two hosts ever wrote at the same time.

use std::time::Duration;

use crate::play::{FAILING, TURNS, WAITING};
use crate::scenario::{Device, Fault, Outcome, Scenario, Stake};
use crate::timeline::{Event, GuestNo, What};

/// Seconds after which a renewal is certain to have been seen: the disks are looked at every 30 ms by a program that others may
/// hold up.
const SEEN_LATE: f64 = 0.2;

/// The moments of one run, in seconds since the last renewal of the failing host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moments {
    /// Last write of the failing host's holder, to either disk.
    pub(crate) last_write: Option<f64>,
    /// Its daemon gave the lockspace up.
    pub(crate) recovery: Option<f64>,
    /// The first SIGKILL.
    pub(crate) sigkill: Option<f64>,
    /// The reset.
    pub(crate) reset: Option<f64>,
    /// The other host owns the lease on disk.
    pub(crate) take_over: Option<f64>,
    /// From the last write or the reset, whichever was later, to the take-over.
    pub(crate) margin: Option<f64>,
}

/// A judgement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    /// What is put into the table.
    pub(crate) moments: Moments,
    /// What is wrong; empty if nothing is.
    pub(crate) problems: Vec<String>,
}

impl Verdict {
    /// For a scenario that did not come to its end.
    pub(crate) fn failed(problem: String) -> Self {
        Self { moments: Moments::default(), problems: vec![problem] }
    }
}

/// Whether this console line says that a lockspace was given up: as the original puts it, as ours does.
fn is_recovery(text: &str) -> bool {
    text.starts_with("sanlock:") && (text.contains("check_our_lease failed") || text.contains("has failed: "))
}

/// Whether this console line says that a process is sent a signal of this number or name.
fn is_signal(text: &str, number: u8, name: &str) -> bool {
    let is = |what: &str| text.contains(&format!(" sig {what} "));
    text.starts_with("sanlock:") && text.contains(" kill ") && (is(&number.to_string()) || is(name))
}

fn is_reset(what: &What, of: GuestNo) -> bool {
    matches!(what, What::Qmp(guest, name, reason)
        if *guest == of && (name == "WATCHDOG" || (matches!(name.as_str(), "SHUTDOWN" | "RESET") && reason == "guest-reset")))
}

fn is_write(what: &What, of: GuestNo) -> bool {
    matches!(what, What::Stamp(host, _) | What::LeaseDiskStamp(host, _) if *host == of)
}

/// When the first host was seen to have renewed its host id in a lockspace.
fn renewals(events: &[Event], of: usize) -> impl Iterator<Item = Duration> + Clone {
    events.iter().filter_map(move |event| match event.what {
        What::Renewal { space, host: FAILING, timestamp } if space == of && timestamp != 0 => Some(event.at),
        _ => None,
    })
}

/// How often it went without for `seconds` or longer, and then renewed again, from event number `fault` on.
fn outages(events: &[Event], fault: usize, space: usize, seconds: u64) -> usize {
    let (before, after) = events.split_at(fault);
    let since = renewals(before, space).last().into_iter().chain(renewals(after, space));
    since
        .clone()
        .zip(since.skip(1))
        .filter(|(last, next)| next.saturating_sub(*last).as_secs() >= seconds)
        .count()
}

/// Judges `events`.
pub(crate) fn judge(scenario: &Scenario, events: &[Event]) -> Verdict {
    let Some(fault) = events.iter().position(|event| matches!(event.what, What::Fault)) else {
        return Verdict::failed("the fault was never reached".into());
    };
    let after = events.get(fault..).unwrap_or(&[]);
    let find = |test: &dyn Fn(&What) -> bool| after.iter().position(|event| test(&event.what));
    let line = |of: GuestNo, test: fn(&str) -> bool| {
        find(&|what| matches!(what, What::Line(guest, text) if *guest == of && test(text)))
    };
    let recovery = line(FAILING, is_recovery);
    let sigkill = line(FAILING, |text| is_signal(text, 9, "Kill"));
    let sigterm = line(FAILING, |text| is_signal(text, 15, "Term"));
    let reset = find(&|what| is_reset(what, FAILING));
    let watchdog = find(&|what| matches!(what, What::Qmp(FAILING, name, _) if name == "WATCHDOG"));
    let softdog = line(FAILING, |text| text.contains("Initiating system reboot"));
    let graceful = line(FAILING, |text| text.contains("graceful stop"));
    let taken = |what: &What| matches!(what, What::Leader { owner, timestamp, .. } if *owner == WAITING as u64 + 1 && *timestamp != 0);
    let take_over = find(&taken);
    let last_write = events.iter().rposition(|event| is_write(&event.what, FAILING));
    let last_renewal = events.iter().rposition(
        |event| matches!(event.what, What::Renewal { space: 0, host: FAILING, timestamp } if timestamp != 0),
    );

    let zero = last_renewal.and_then(|at| events.get(at)).map_or(Duration::ZERO, |event| event.at);
    let since = |at: Option<&Event>| at.map(|event| event.at.as_secs_f64() - zero.as_secs_f64());
    let mut moments = Moments {
        last_write: since(last_write.and_then(|at| events.get(at))),
        recovery: since(recovery.and_then(|at| after.get(at))),
        sigkill: since(sigkill.and_then(|at| after.get(at))),
        reset: since(reset.and_then(|at| after.get(at))),
        take_over: since(take_over.and_then(|at| after.get(at))),
        margin: None,
    };
    let last_sign = [moments.last_write, moments.reset].into_iter().flatten().reduce(f64::max);
    moments.margin = moments.take_over.zip(last_sign).map(|(take_over, sign)| take_over - sign);

    let mut problems = Vec::new();
    let mut require = |right: bool, problem: &str| {
        if !right {
            problems.push(problem.to_owned());
        }
    };
    // The rule above all others. In one look at the disks the stamps come before the leader.
    let overlap =
        take_over.is_some_and(|at| after.iter().skip(at).any(|event| is_write(&event.what, FAILING)));
    require(!overlap, "OVERLAP: the first host wrote after the second one had the lease");
    let blind = events.iter().any(|event| matches!(event.what, What::Blind(_)));
    require(!blind, "the images were not looked at to the end: an overlap may have gone unseen");
    require(find(&|what| is_reset(what, WAITING)).is_none(), "the host that did not fail was reset");
    require(line(WAITING, is_recovery).is_none(), "the host that did not fail gave its lockspace up");

    let before = |first: Option<f64>, second: Option<f64>| match (first, second) {
        (Some(first), Some(second)) => first < second,
        _ => true,
    };
    let order = [
        ("last renewal", Some(0.0)),
        ("recovery", moments.recovery),
        ("SIGKILL", moments.sigkill),
        ("reset", moments.reset),
        ("take-over", moments.take_over),
    ];
    for (at, (earlier, first)) in order.iter().enumerate() {
        for (later, second) in order.iter().skip(at + 1) {
            let idle = scenario.outcome == Outcome::NoReset && *later == "take-over";
            // A renewal is on the disk before it is seen there: a reset at that moment came after it.
            let seen_late = if at == 0 && *later == "reset" { SEEN_LATE } else { 0.0 };
            let second = second.map(|second| second + seen_late);
            require(idle || before(*first, second), &format!("{later} before {earlier}"));
        }
    }
    require(before(moments.last_write, moments.take_over), "last write after the take-over");
    // On its own clock the failing host has to be done before others may act.
    let dead = scenario.timing.dead() as f64;
    match scenario.outcome {
        Outcome::Reset => {
            require(take_over.is_some(), "no take-over");
            require(reset.is_some(), "no reset");
            match scenario.device {
                Device::Softdog => require(softdog.is_some(), "the reset was not softdog's"),
                _ => require(watchdog.is_some(), "the reset was not the watchdog's"),
            }
            require(before(moments.reset, Some(dead)), "the reset came later than promised to other hosts");
            if matches!(scenario.fault, Fault::Cut(_) | Fault::CutThenHolderEnds(_)) {
                require(recovery.is_some(), "no recovery");
            }
            if matches!(scenario.fault, Fault::Cut(_)) {
                require(sigkill.is_some(), "no SIGKILL");
            }
        }
        Outcome::Stopped => {
            require(take_over.is_some(), "no take-over");
            require(reset.is_none(), "reset although the holder was gone");
            require(recovery.is_some(), "no recovery");
            require(
                before(moments.last_write, Some(dead)),
                "the holder wrote longer than promised to other hosts",
            );
            match scenario.stake {
                Stake::IgnoresTerm => {
                    require(sigkill.is_some(), "no SIGKILL");
                    let gentle = scenario.timing.grace.unwrap_or(0) > 0 || scenario.timing.fire >= 30;
                    require(!gentle || sigterm.is_some(), "no SIGTERM before the SIGKILL");
                }
                Stake::KillProgram => {
                    require(graceful.is_some(), "the kill program did not run");
                    require(sigkill.is_none(), "SIGKILL although the kill program worked");
                }
                _ => {}
            }
        }
        Outcome::Undisturbed => {
            require(reset.is_none(), "reset although the storage came back in time");
            require(recovery.is_none(), "lockspace given up although the storage came back in time");
            require(
                sigterm.is_none() && sigkill.is_none(),
                "process killed although the storage came back in time",
            );
            require(take_over.is_none(), "the second host got a lease that is held");
            // Who never lost the storage is not disturbed either. An outage begins right after a renewal.
            let (spaces, times, seconds) = match scenario.fault {
                Fault::ShortCut(_, seconds) => (1, 1, seconds),
                Fault::TwoDisksByTurns(_, seconds) => (2, TURNS, seconds),
                _ => (0, 0, 0),
            };
            let seen = (0..spaces).all(|space| outages(events, fault, space, seconds) >= times);
            require(seen, "the first host went on renewing: it has not lost the storage");
        }
        Outcome::NoReset => {
            require(reset.is_none(), "reset although nothing was held");
            require(take_over.is_some(), "the second host did not get the free lease");
            // One may have been under way.
            let renewed = renewals(after, 0).count() > 1;
            require(!renewed, "the first host went on renewing: nothing has befallen it");
        }
    }
    Verdict { moments, problems }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::PAIRS;

    fn scenario(name: &str) -> &'static Scenario {
        PAIRS.iter().find(|scenario| scenario.name == name).expect("scenario")
    }

    fn events(list: &[(u64, What)]) -> Vec<Event> {
        list.iter().map(|(at, what)| Event { at: Duration::from_secs(*at), what: what.clone() }).collect()
    }

    fn renewal(at: u64) -> (u64, What) {
        (at, What::Renewal { space: 0, host: FAILING, timestamp: 100 + at })
    }

    fn taken(at: u64) -> (u64, What) {
        (at, What::Leader { owner: 2, generation: 1, lver: 2, timestamp: 7 })
    }

    fn fired(at: u64) -> [(u64, What); 2] {
        let event = |name: &str, reason: &str| (at, What::Qmp(FAILING, name.into(), reason.into()));
        [event("WATCHDOG", "reset"), event("SHUTDOWN", "guest-reset")]
    }

    #[test]
    fn a_reset_between_the_last_write_and_the_take_over_is_right() {
        let [watchdog, shutdown] = fired(20);
        let list = events(&[
            renewal(1),
            (1, What::Fault),
            (19, What::Stamp(FAILING, 9)),
            watchdog,
            shutdown,
            taken(27),
        ]);
        let verdict = judge(scenario("c-kill-daemon"), &list);
        assert!(verdict.problems.is_empty(), "{:?}", verdict.problems);
        assert_eq!(verdict.moments.margin, Some(7.0));
    }

    /// The reset is an event, the renewal is found on the disk a moment later.
    #[test]
    fn a_renewal_seen_at_the_moment_of_the_reset_came_before_it() {
        let judged = |seen_late: u64| {
            let at = |millis: u64, (_, what): (u64, What)| Event { at: Duration::from_millis(millis), what };
            let [watchdog, shutdown] = fired(0);
            let list = [
                at(1000, renewal(1)),
                at(1000, (0, What::Fault)),
                at(20_000, watchdog),
                at(20_000, shutdown),
                at(20_000 + seen_late, renewal(20)),
                at(29_000, taken(0)),
            ];
            judge(scenario("d-stop-wdmd"), &list).problems
        };
        assert_eq!(judged(25), Vec::<String>::new());
        assert_eq!(judged(1500), ["reset before last renewal"]);
    }

    #[test]
    fn a_write_after_the_take_over_is_an_overlap() {
        let [watchdog, shutdown] = fired(20);
        for late in [What::Stamp(FAILING, 9), What::LeaseDiskStamp(FAILING, 9)] {
            let list = events(&[
                renewal(1),
                (1, What::Fault),
                watchdog.clone(),
                shutdown.clone(),
                taken(27),
                (28, late),
            ]);
            let verdict = judge(scenario("c-kill-daemon"), &list);
            assert!(verdict.problems.iter().any(|problem| problem.starts_with("OVERLAP")), "{verdict:?}");
        }
    }

    #[test]
    fn a_take_over_before_the_reset_is_wrong_even_without_a_write() {
        let [watchdog, shutdown] = fired(20);
        let list = events(&[renewal(1), (1, What::Fault), taken(19), watchdog, shutdown]);
        let verdict = judge(scenario("c-kill-daemon"), &list);
        assert_eq!(verdict.problems, ["take-over before reset"]);
    }

    #[test]
    fn a_reset_that_no_watchdog_caused_does_not_count() {
        let [_, shutdown] = fired(20);
        let verdict =
            judge(scenario("c-kill-daemon"), &events(&[renewal(1), (1, What::Fault), shutdown, taken(27)]));
        assert_eq!(verdict.problems, ["the reset was not the watchdog's"]);
    }

    #[test]
    fn a_kill_or_a_reset_after_a_short_outage_is_wrong() {
        let line = |text: &str| (3, What::Line(FAILING, text.into()));
        let scenario = scenario("e-back-errors");
        let with = |extra: &[(u64, What)]| {
            let list = [&[renewal(1), (1, What::Fault)], extra, &[renewal(11)]].concat();
            judge(scenario, &events(&list)).problems
        };
        assert_eq!(with(&[]), Vec::<String>::new());
        let [watchdog, _] = fired(4);
        for (bad, problem) in [
            (
                line("sanlock: s1 kill 144 sig 9 count 1"),
                "process killed although the storage came back in time",
            ),
            (
                line("sanlock: s1 check_our_lease failed 16"),
                "lockspace given up although the storage came back in time",
            ),
            (taken(4), "the second host got a lease that is held"),
            (watchdog, "reset although the storage came back in time"),
        ] {
            let problems = with(&[bad]);
            assert!(problems.iter().any(|said| said == problem), "{problems:?}");
        }
    }

    #[test]
    fn a_storage_that_was_never_away_shows_nothing() {
        let problems =
            |name: &str, list: &[(u64, What)]| judge(scenario(name), &events(list)).problems.join("; ");
        let went_on = "the first host went on renewing: it has not lost the storage";
        let all_the_time = [renewal(1), (1, What::Fault), renewal(5), renewal(9), renewal(13)];
        assert_eq!(problems("e-back-hang", &all_the_time), went_on);
        // What was away before does not count.
        let before = [renewal(1), renewal(11), (11, What::Fault), renewal(15), renewal(19)];
        assert_eq!(problems("e-back-hang", &before), went_on);

        let second = |at: u64| (at, What::Renewal { space: 1, host: FAILING, timestamp: at });
        let three = [7, 14, 21].map(renewal);
        let both =
            [&[renewal(0), second(1), (1, What::Fault)], &three[..], &[8, 15, 22].map(second)].concat();
        assert_eq!(problems("g-by-turns", &both), "");
        let one = [&[renewal(0), second(1), (1, What::Fault)], &three[..], &[5, 9, 13].map(second)].concat();
        assert_eq!(problems("g-by-turns", &one), went_on);
        let twice = [&[renewal(0), second(1), (1, What::Fault)], &three[..], &[8, 15].map(second)].concat();
        assert_eq!(problems("g-by-turns", &twice), went_on);
    }

    #[test]
    fn an_idle_host_to_which_nothing_happens_shows_nothing() {
        let problems =
            |list: &[(u64, What)]| judge(scenario("f-idle-hang"), &events(list)).problems.join("; ");
        // What hung may be carried out when the emulator ends.
        for late in [&[][..], &[renewal(30)]] {
            assert_eq!(problems(&[&[renewal(1), (1, What::Fault), taken(4)], late].concat()), "");
        }
        assert_eq!(
            problems(&[renewal(1), (1, What::Fault), taken(4), renewal(5), renewal(9)]),
            "the first host went on renewing: nothing has befallen it"
        );
    }

    #[test]
    fn what_nobody_looked_at_to_the_end_is_no_success() {
        let [watchdog, shutdown] = fired(20);
        let list = [renewal(1), (1, What::Fault), watchdog, shutdown, taken(27)];
        assert!(judge(scenario("c-kill-daemon"), &events(&list)).problems.is_empty());
        let blind = [&list[..], &[(28, What::Blind("Input/output error".into()))]].concat();
        let problems = judge(scenario("c-kill-daemon"), &events(&blind)).problems;
        assert!(matches!(&problems[..], [one] if one.contains("not looked at to the end")), "{problems:?}");
    }
}
