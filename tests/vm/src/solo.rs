//! Plays and judges a scenario of one host whose clock jumps over idle time: hours cost nothing, and nobody outside can
//! give orders in between. So the guest gets one long order, and says itself what second it is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::guest::{Build, Guest};
use crate::image::Boot;
use crate::judge::Verdict;
use crate::layout::{LEASE_DISK, RESOURCE_OFFSET};
use crate::play::{add_lockspace, start_daemons};
use crate::scenario::{Outfit, Solo, SoloScenario};
use crate::timeline::{Timeline, What};
use crate::watch::Images;

/// That no thread of either daemon frees memory by writing to disks (`PF_MEMALLOC_NOIO`) but the one that makes huge pages, and that a program
/// which they do not start may. A thread may end meanwhile.
const SPARED: &str = "{ for F in /proc/$SANLOCK/task/* /proc/$WDMD/task/*; do \
     MARK=$(cut -d' ' -f9 $F/stat 2>/dev/null); NAME=$(cat $F/comm 2>/dev/null); [ -n \"$MARK\" ] && [ -n \"$NAME\" ] || continue; \
     [ $((MARK & 0x80000)) != 0 ] || [ $NAME = sanlock-memory ] || echo \"writes for memory: $NAME\"; \
     [ $((MARK & 0x80000)) = 0 ] || [ $NAME != sanlock-memory ] || echo \"makes no room: $NAME\"; done; \
     [ $(( $(cut -d' ' -f9 /proc/$PID/stat) & 0x80000 )) = 0 ]; }";

/// Real time for the whole order: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// A clock that jumps runs ahead of a slow disk, so on a busy machine the join may fail before anything was tried.
const ATTEMPTS: u32 = 3;

/// Plays `scenario`, again if it broke off before the daemon was killed.
///
/// # Errors
/// It did not come to an end.
pub(crate) fn play(
    scenario: &SoloScenario,
    boot: &Boot,
    images: &Images,
    sockets: &Path,
    timeline: &Arc<Timeline>,
) -> Result<Verdict, String> {
    for _ in 1..ATTEMPTS {
        if let Some(verdict) = attempt(scenario, boot, images, sockets, timeline)? {
            return Ok(verdict);
        }
    }
    let last = attempt(scenario, boot, images, sockets, timeline)?;
    last.ok_or_else(|| "the order broke off before the daemon was killed".into())
}

/// `None`: it broke off.
fn attempt(
    scenario: &SoloScenario,
    boot: &Boot,
    images: &Images,
    sockets: &Path,
    timeline: &Arc<Timeline>,
) -> Result<Option<Verdict>, String> {
    let mark = timeline.mark();
    let build = Build {
        number: 0,
        kind: scenario.kind,
        device: scenario.device,
        images,
        outfit: Outfit::Holder,
        skip_waits: scenario.what != Solo::Sleeps,
    };
    let mut guest = Guest::start(boot, &build, sockets, Arc::clone(timeline))?;
    let begin = start_daemons(0, scenario.timing);
    let add = add_lockspace("LS", 0, LEASE_DISK, scenario.timing);
    let held = format!(
        "sanlock direct init -s LS:0:{LEASE_DISK}:0; sanlock direct init -r LS:R1:{LEASE_DISK}:{RESOURCE_OFFSET}; \
         {begin}; {add} && begin holder sanlock-vm holder 1 && \
         {{ n=0; until sanlock client status | grep '^r ' | grep -qv ADD || [ $n = 600 ]; do n=$((n+1)); sleep 1; done; }}"
    );
    let order = format!(
        "{held} && RENEWED=$(sanlock client status -D | sed -n 's/.*renewal_last_success=//p') && kill -9 $SANLOCK && \
         while :; do echo \"TICK $(cut -d' ' -f1 /proc/uptime) RENEWED $RENEWED\" >/dev/ttyS0; sleep 1; done || \
         {{ echo BROKEN-OFF >/dev/ttyS0; false; }}"
    );
    match scenario.what {
        Solo::Sleeps => sleep(scenario, &mut guest, &held).map(Some),
        Solo::Refused => {
            let (status, said) = guest.order(&order, PATIENCE)?;
            let mut verdict = Verdict::default();
            if status == 0 || !said.contains("done -203") {
                verdict
                    .problems
                    .push(format!("the lockspace was not refused with -203: status {status}, {said}"));
            }
            Ok(Some(verdict))
        }
        Solo::Fires => {
            // It never answers: its last command is to wait for the end.
            guest.send(&order)?;
            let (_, reset) = timeline.expect(mark, PATIENCE, "reset", |what| match what {
                What::Qmp(_, name, reason) if name == "SHUTDOWN" && reason == "guest-reset" => Some(true),
                What::Line(_, text) if text == "BROKEN-OFF" => Some(false),
                _ => None,
            })?;
            Ok(reset.then(|| judge(scenario, timeline)))
        }
    }
}

/// Takes the lease (`held`), sleeps for longer than other hosts would wait, and looks what becomes of the holder.
fn sleep(scenario: &SoloScenario, guest: &mut Guest, held: &str) -> Result<Verdict, String> {
    let seconds = scenario.timing.dead() + 16;
    let order = format!(
        "{held} && {SPARED} && HOLDER=$PID && sleep 2 && kill -0 $HOLDER && BEFORE=$(cut -d' ' -f1 /proc/uptime) && \
         echo 0 >/sys/class/rtc/rtc0/wakealarm; echo +{seconds} >/sys/class/rtc/rtc0/wakealarm; echo mem >/sys/power/state; \
         WOKE=$(cut -d' ' -f1 /proc/uptime); n=0; \
         while kill -0 $HOLDER 2>/dev/null && [ $n -lt 100 ]; do n=$((n+1)); usleep 200000; done; \
         echo \"slept from $BEFORE to $WOKE, holder until $(cut -d' ' -f1 /proc/uptime)\"; ! kill -0 $HOLDER 2>/dev/null"
    );
    let (status, said) = guest.order(&order, PATIENCE)?;
    let mut verdict = Verdict::default();
    let marks = ["writes for memory", "makes no room"];
    verdict
        .problems
        .extend(said.lines().filter(|line| marks.iter().any(|mark| line.contains(mark))).map(str::to_owned));
    match slept(&said) {
        Some((before, woke)) if woke - before > scenario.timing.dead() as f64 => {}
        _ => verdict.problems.push(format!("the machine did not sleep: {said}")),
    }
    if status != 0 {
        verdict.problems.push(format!("the holder goes on after the machine slept: {said}"));
    }
    Ok(verdict)
}

/// From when until when, by the clock that counts sleep.
fn slept(text: &str) -> Option<(f64, f64)> {
    let (before, rest) = text.split_once("slept from ")?.1.split_once(" to ")?;
    Some((before.parse().ok()?, rest.split(',').next()?.parse().ok()?))
}

fn judge(scenario: &SoloScenario, timeline: &Timeline) -> Verdict {
    let events = timeline.events();
    let mut verdict = Verdict::default();
    let mut ticks = events.iter().filter_map(|event| match &event.what {
        What::Line(_, text) => tick(text),
        _ => None,
    });
    match ticks.next_back() {
        Some((last, renewed)) => {
            // The reset came within a second after the last sign of life.
            verdict.moments.reset = Some(last - renewed);
            let latest = scenario.timing.dead() as f64;
            if last - renewed >= latest {
                let problem =
                    format!("alive {:.1} s after the last renewal, promised: {latest}", last - renewed);
                verdict.problems.push(problem);
            }
        }
        None => verdict.problems.push("the daemon was not killed while it held the lease".into()),
    }
    let fired = events.iter().any(|event| match &event.what {
        What::Qmp(_, name, _) => scenario.device.is_hardware() && name == "WATCHDOG",
        What::Line(_, text) => !scenario.device.is_hardware() && text.contains("Initiating system reboot"),
        _ => false,
    });
    if !fired {
        verdict.problems.push("the reset was not the watchdog's".into());
    }
    verdict
}

fn tick(text: &str) -> Option<(f64, f64)> {
    let mut words = text.strip_prefix("TICK ")?.split(' ');
    let now = words.next()?.parse().ok()?;
    let renewed = words.nth(1)?.parse().ok()?;
    Some((now, renewed))
}
