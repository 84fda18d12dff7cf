//! Plays a scenario of two hosts.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::guest::{Build, Cut, Guest};
use crate::image::Boot;
use crate::layout::{IMAGE_BYTES, LEASE_DISK, LOCKSPACE_OFFSET, RESOURCE_OFFSET, SECOND_LEASE_DISK};
use crate::scenario::{Daemon, Fault, Outcome, Outfit, Scenario, Stake, Timing};
use crate::timeline::{GuestNo, Timeline, What};
use crate::watch::{Images, Watcher};

/// The host that fails.
pub(crate) const FAILING: GuestNo = 0;
/// The host that waits for the lease.
pub(crate) const WAITING: GuestNo = 1;
/// How often either disk is away in [`Fault::TwoDisksByTurns`].
pub(crate) const TURNS: usize = 3;

/// Longest wait for a short order: the machine may be busy.
const ORDER_LIMIT: Duration = Duration::from_secs(60);
/// More patience than any timeout of the programs asks for.
const PATIENCE: Duration = Duration::from_secs(90);

/// Makes the shared images, all zeros and preallocated.
///
/// # Errors
/// No space.
pub(crate) fn make_images(dir: &Path) -> Result<Images, String> {
    let image = |name: &str| {
        let path = dir.join(name);
        let zeros = vec![0; usize::try_from(IMAGE_BYTES).unwrap_or(0)];
        let written = std::fs::write(&path, &zeros).and_then(|()| File::open(&path)?.sync_all());
        written.map_err(|error| format!("{}: {error}", path.display())).map(|()| path)
    };
    Ok(Images { leases: vec![image("lease0.img")?, image("lease1.img")?], stamps: image("stamps.img")? })
}

/// Plays `scenario`; what was seen is in `timeline`.
///
/// # Errors
/// Something that should have happened before the fault did not, or the outcome stayed away.
pub(crate) fn play(
    scenario: &Scenario,
    boot: &Boot,
    images: &Images,
    sockets: &Path,
    timeline: &Arc<Timeline>,
) -> Result<(), String> {
    let _watcher = Watcher::start(images, Arc::clone(timeline))?;
    let start = |number: GuestNo| {
        let (kind, device) = (scenario.hosts[number], scenario.device);
        let build = Build { number, kind, device, images, outfit: Outfit::Holder, skip_waits: false };
        Guest::start(boot, &build, sockets, Arc::clone(timeline))
    };
    let (failing, waiting) = thread::scope(|scope| {
        let other = scope.spawn(|| start(WAITING));
        (start(FAILING), other.join())
    });
    let mut failing = failing?;
    let mut waiting = waiting.map_err(|_| "starting the second guest panicked".to_owned())??;
    failing.must(&format(scenario.timing.io), ORDER_LIMIT)?;
    let join = |guest: &mut Guest, number: GuestNo| -> Result<(), String> {
        guest.must(&start_daemons(number, scenario.timing), ORDER_LIMIT)?;
        guest.must(&add_lockspace("LS", number, LEASE_DISK, scenario.timing), PATIENCE).map(drop)
    };
    let (first, second) = thread::scope(|scope| {
        let other = scope.spawn(|| join(&mut waiting, WAITING));
        (join(&mut failing, FAILING), other.join())
    });
    first?;
    second.map_err(|_| "joining on the second guest panicked".to_owned())??;

    prepare_stake(scenario, &mut failing, timeline)?;
    if scenario.stake != Stake::Idle {
        ask_for_lease(&mut waiting)?;
        timeline.expect(0, PATIENCE, "refusal of the second host", |what| match what {
            What::Line(WAITING, text) if text.contains("holder: refused -243") => Some(()),
            _ => None,
        })?;
    }
    // Right after a renewal: the longest time until anybody gives up.
    let mark = timeline.mark();
    timeline.expect(mark, PATIENCE, "renewal of the first host", renewal_of_failing)?;
    let fault = timeline.mark();
    timeline.push(What::Fault);
    perform_fault(scenario, &mut failing, timeline)?;
    see_outcome(scenario, &mut waiting, timeline, fault)
}

fn renewal_of_failing(what: &What) -> Option<()> {
    matches!(what, What::Renewal { space: 0, host: FAILING, .. }).then_some(())
}

/// The order that formats both disks. The io timeout on disk is what a first join waits for; it is also the limit of the
/// format's own writes, which a busy machine may exceed, so they are tried again.
fn format(io: u64) -> String {
    let mut order = String::new();
    for (space, disk) in [("LS", LEASE_DISK), ("LS2", SECOND_LEASE_DISK)] {
        for what in [
            format!("sanlock direct init -s {space}:0:{disk}:{LOCKSPACE_OFFSET} -o {io}"),
            format!("sanlock direct init -r {space}:R1:{disk}:{RESOURCE_OFFSET}"),
        ] {
            order += &format!("{{ {what} || {what} || {what}; }} && ");
        }
    }
    order + "true"
}

/// One order that writes the configuration, starts both daemons and waits until they answer. Sets WDMD and SANLOCK.
pub(crate) fn start_daemons(number: GuestNo, timing: Timing) -> String {
    let Timing { fire, io, grace } = timing;
    let grace = grace.map_or(String::new(), |grace| format!(" -g {grace}"));
    let until = |test: &str| {
        format!("n=0; until {test}; do n=$((n+1)); [ $n -lt 150 ] || break; usleep 200000; done; {test}")
    };
    format!(
        "mkdir -p /etc/sanlock; \
         printf 'watchdog_fire_timeout = {fire}\\nio_timeout = {io}\\n' >/etc/sanlock/sanlock.conf; \
         begin wdmd wdmd -D -H 1 -G root; WDMD=$PID; {} && \
         begin sanlock sanlock daemon -D -w 1 -h 1 -U root -G root -e machine{}{grace}; SANLOCK=$PID; {}",
        until("[ -S /run/wdmd/wdmd.sock ]"),
        number + 1,
        until("sanlock client status >/dev/null 2>&1"),
    )
}

/// The order that joins a lockspace.
pub(crate) fn add_lockspace(name: &str, number: GuestNo, disk: &str, timing: Timing) -> String {
    let (host, io) = (number + 1, timing.io);
    format!("sanlock client add_lockspace -s {name}:{host}:{disk}:{LOCKSPACE_OFFSET} -o {io}")
}

fn prepare_stake(scenario: &Scenario, failing: &mut Guest, timeline: &Timeline) -> Result<(), String> {
    let words = match scenario.stake {
        Stake::Idle | Stake::Holder => "",
        Stake::IgnoresTerm | Stake::Used => " ignore-term",
        Stake::Orphan => " ignore-term persistent",
        Stake::KillProgram => " killpath",
        Stake::Stuck => " stuck",
    };
    failing.must(&format!("begin holder sanlock-vm holder 1{words}; HOLDER=$PID"), ORDER_LIMIT)?;
    timeline.expect(0, PATIENCE, "first stamp of the first host", |what| match what {
        What::Stamp(FAILING, _) => Some(()),
        _ => None,
    })?;
    if scenario.stake == Stake::Idle {
        let mark = timeline.mark();
        failing.must("kill -9 $HOLDER", ORDER_LIMIT)?;
        timeline.expect(mark, PATIENCE, "release of the lease", |what| match what {
            What::Leader { owner: 1, timestamp: 0, .. } => Some(()),
            _ => None,
        })?;
    }
    if scenario.stake == Stake::Used {
        failing.must("sanlock client set_config -s LS -u 1", ORDER_LIMIT)?;
    }
    if scenario.stake == Stake::Orphan {
        failing.must("sanlock client set_config -s LS -O 1", ORDER_LIMIT)?;
    }
    if matches!(scenario.fault, Fault::TwoDisksByTurns(..)) {
        failing.must(&add_lockspace("LS2", FAILING, SECOND_LEASE_DISK, scenario.timing), PATIENCE)?;
        failing.must("begin second sanlock-vm holder 1 second", ORDER_LIMIT)?;
        timeline.expect(0, PATIENCE, "lease in the second lockspace", |what| match what {
            What::Line(FAILING, text) if text.contains("second: holder: acquired") => Some(()),
            _ => None,
        })?;
    }
    Ok(())
}

fn ask_for_lease(waiting: &mut Guest) -> Result<(), String> {
    waiting.must("begin holder sanlock-vm holder 2; HOLDER=$PID", ORDER_LIMIT).map(drop)
}

fn perform_fault(scenario: &Scenario, failing: &mut Guest, timeline: &Timeline) -> Result<(), String> {
    let variable = |daemon: Daemon| match daemon {
        Daemon::Sanlock => "$SANLOCK",
        Daemon::Wdmd => "$WDMD",
    };
    match scenario.fault {
        Fault::Cut(how) => failing.cut(0, how),
        Fault::CutThenHolderEnds(how) => {
            failing.cut(0, how)?;
            failing.must("kill -9 $HOLDER", ORDER_LIMIT).map(drop)
        }
        Fault::ShortCut(how, seconds) => {
            failing.cut(0, how)?;
            thread::sleep(Duration::from_secs(seconds));
            failing.restore(0, how)
        }
        Fault::TwoDisksByTurns(how, seconds) => by_turns(failing, timeline, how, seconds),
        Fault::Kill(daemon) => failing.must(&format!("kill -9 {}", variable(daemon)), ORDER_LIMIT).map(drop),
        Fault::Stop(daemon) => {
            failing.must(&format!("kill -STOP {}", variable(daemon)), ORDER_LIMIT).map(drop)
        }
        Fault::StopThenKill(daemon) => {
            let name = variable(daemon);
            failing.must(&format!("kill -STOP {name}; sleep 2; kill -9 {name}"), ORDER_LIMIT).map(drop)
        }
    }
}

/// Each disk is away for `seconds`, the second one starting in the middle of the first one's outage; [`TURNS`] times. An
/// outage begins right after a renewal, so it is over before its own deadline.
fn by_turns(failing: &mut Guest, timeline: &Timeline, how: Cut, seconds: u64) -> Result<(), String> {
    for _ in 0..TURNS {
        for disk in [0, 1] {
            let mark = timeline.mark();
            timeline.expect(mark, PATIENCE, "renewal between the outages", |what| match what {
                What::Renewal { space, host: FAILING, .. } if *space == disk => Some(()),
                _ => None,
            })?;
            failing.cut(disk, how)?;
            thread::sleep(Duration::from_secs(seconds / 2));
            if disk == 0 {
                continue;
            }
            failing.restore(0, how)?;
            thread::sleep(Duration::from_secs(seconds / 2));
            failing.restore(1, how)?;
        }
    }
    Ok(())
}

fn see_outcome(
    scenario: &Scenario,
    waiting: &mut Guest,
    timeline: &Timeline,
    fault: usize,
) -> Result<(), String> {
    let dead = Duration::from_secs(scenario.timing.dead());
    match scenario.outcome {
        Outcome::Reset | Outcome::Stopped => {
            timeline.expect(fault, 2 * dead + PATIENCE, "take-over", |what| match what {
                What::Stamp(WAITING, _) => Some(()),
                _ => None,
            })?;
            // A holder that still writes would show now.
            thread::sleep(Duration::from_secs(2));
        }
        Outcome::Undisturbed => {
            // Longer than any reset that the outage could have caused.
            thread::sleep(dead + Duration::from_secs(2));
            let mark = timeline.mark();
            timeline.expect(mark, PATIENCE, "renewal after the outage", renewal_of_failing)?;
            timeline.expect(mark, PATIENCE, "stamp after the outage", |what| match what {
                What::Stamp(FAILING, _) => Some(()),
                _ => None,
            })?;
        }
        Outcome::NoReset => {
            ask_for_lease(waiting)?;
            timeline.expect(fault, PATIENCE, "lease for the second host", |what| match what {
                What::Stamp(WAITING, _) => Some(()),
                _ => None,
            })?;
            thread::sleep(dead + Duration::from_secs(2));
        }
    }
    Ok(())
}
