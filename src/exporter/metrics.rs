//! The metrics of a scrape, as text. Their names and labels are an interface: docs/guide/monitoring.md lists them.

use super::page::{Format, Kind, Page, printable};
use super::renewals::{BOUNDS, Durations, Renewals};
use super::scrape::{HOST_STATES, LEASE_LISTS, LockspaceView, STEPS, Scrape};
use sanlock_client::wire::counters::{COUNTED, LATENCY_BOUNDS_US, Latencies, Outcome, number};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};

/// What can be between a lockspace and the watchdog, in the daemon's words.
const WATCH_STATES: [&str; 6] = ["off", "checking", "idle", "arming", "armed", "lost"];

/// The text of a scrape.
pub(crate) fn text(scrape: &Scrape, format: Format) -> String {
    let mut page = Page::new(format);
    exporter(&mut page, scrape);
    if scrape.up {
        daemon(&mut page, scrape);
        lockspaces(&mut page, scrape);
        limits(&mut page, scrape);
        hosts_and_leases(&mut page, scrape);
        renewals(&mut page, scrape);
        counters(&mut page, scrape);
    }
    page.finish()
}

fn exporter(page: &mut Page, scrape: &Scrape) {
    page.family("sanlock_up", Kind::Gauge, "Whether the daemon answered.");
    page.sample(&[], u8::from(scrape.up));
    page.family("sanlock_scrape_duration_seconds", Kind::Gauge, "How long asking the daemon took.");
    page.sample(&[], scrape.took.as_secs_f64());
    let help = "Questions that the daemon did not answer, by what was asked.";
    page.family("sanlock_scrape_errors_total", Kind::Counter, help);
    for (step, count) in STEPS.iter().zip(scrape.errors) {
        page.sample(&[("step", step)], count);
    }
    page.family("sanlock_exporter_build_info", Kind::Gauge, "Version of the exporter; always 1.");
    page.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
}

fn daemon(page: &mut Page, scrape: &Scrape) {
    if let Some(record) = &scrape.daemon {
        let word = |key: &str| record.get(key).map(printable).unwrap_or_default();
        page.family("sanlock_daemon_info", Kind::Gauge, "Versions and name of the daemon; always 1.");
        let (version, protocol, host) = (word("version_str"), word("version_num"), word("our_host_name"));
        page.sample(&[("version", &version), ("compatible", &protocol), ("host_name", &host)], 1);
        if let Some(used) = number(record, "use_watchdog") {
            page.family("sanlock_watchdog_enabled", Kind::Gauge, "Whether the daemon uses the watchdog.");
            page.sample(&[], u8::from(used != 0));
        }
    }
    page.family("sanlock_connections", Kind::Gauge, "Connections of clients to the daemon.");
    for (registered, count) in ["no", "yes"].iter().zip(scrape.connections) {
        page.sample(&[("registered", registered)], count);
    }
    let help = "Registered processes that the daemon has begun to stop.";
    page.family("sanlock_processes_being_stopped", Kind::Gauge, help);
    page.sample(&[], scrape.killing);
    page.family("sanlock_lockspaces", Kind::Gauge, "Lockspaces by what they are: joined, adding, removing.");
    for (word, list) in [("joined", "spaces"), ("adding", "add"), ("removing", "rem")] {
        let on_list = |view: &&LockspaceView| {
            view.record.as_ref().and_then(|record| record.get("list")) == Some(list.as_bytes())
        };
        page.sample(&[("state", word)], scrape.lockspaces.values().filter(on_list).count());
    }
    let help = "Lockspaces beyond the limit of 256, of which nothing is shown.";
    page.family("sanlock_lockspaces_left_out", Kind::Gauge, help);
    page.sample(&[], scrape.left_out);
}

/// A gauge with one sample for each lockspace that has it.
fn each<T: std::fmt::Display>(
    page: &mut Page,
    scrape: &Scrape,
    name: &'static str,
    help: &str,
    value: impl Fn(&LockspaceView) -> Option<T>,
) {
    page.family(name, Kind::Gauge, help);
    for (lockspace, view) in &scrape.lockspaces {
        if let Some(value) = value(view) {
            page.sample(&[("lockspace", lockspace)], value);
        }
    }
}

fn lockspaces(page: &mut Page, scrape: &Scrape) {
    let joined = |view: &LockspaceView, key: &str| if view.joined { view.number(key) } else { None };
    let name = "sanlock_lockspace_host_id";
    each(page, scrape, name, "The host id of this host.", |view| view.record.as_ref().map(|r| r.data64));
    let name = "sanlock_lockspace_host_generation";
    each(page, scrape, name, "The generation of this host's id.", |v| joined(v, "host_generation"));
    let name = "sanlock_lockspace_healthy";
    let help = "1 while leases may be taken, 0 once the lockspace has failed or is being removed.";
    each(page, scrape, name, help, |view| {
        let dead = view.number("space_dead").filter(|_| view.joined || view.leaving)?;
        Some(u8::from(dead == 0 && view.joined))
    });
    let name = "sanlock_lockspace_renewal_ok";
    let help = "Whether the last attempt to renew the host id succeeded.";
    each(page, scrape, name, help, |view| {
        // 0: there was none yet.
        view.signed("renewal_last_result").filter(|_| view.joined).map(|code| u8::from(code >= 0))
    });
    let name = "sanlock_lockspace_corrupt";
    let help = "1 once something else than our own record was found at the place of our host id.";
    each(page, scrape, name, help, |view| view.signed("corrupt_result").map(|code| u8::from(code != 0)));
    let name = "sanlock_lockspace_stopping_users";
    let help = "1 while the users of a lockspace that has failed or is being removed are stopped.";
    each(page, scrape, name, help, |view| view.number("killing_pids").map(|k| u8::from(k != 0)));
    if scrape.lockspaces.values().any(|view| view.watch.is_some()) {
        let help = "What is between a lockspace and the watchdog; 1 for what is true.";
        page.family("sanlock_lockspace_watchdog_state", Kind::Gauge, help);
        for (lockspace, view) in &scrape.lockspaces {
            let Some(watch) = &view.watch else { continue };
            for state in WATCH_STATES {
                page.sample(&[("lockspace", lockspace), ("state", state)], u8::from(watch == state));
            }
        }
    }
}

/// How old the last good renewal is, and what that leaves.
struct Budget {
    age: i64,
    fail: i64,
    dead: i64,
}

impl Budget {
    fn of(view: &LockspaceView, scrape: &Scrape) -> Option<Self> {
        let now = number(scrape.daemon.as_ref()?, "monotime")?;
        // One that is left in order is renewed no more, and nobody is stopped for that.
        let failed = view.leaving && view.number("renew_fail").is_some_and(|failed| failed != 0);
        let last = view.number("renewal_last_success").filter(|at| *at > 0 && (view.joined || failed))?;
        let io_timeout = io_timeout(view)?;
        let fire = WatchdogFire::new(u32::try_from(scrape.fire).ok()?).unwrap_or(WatchdogFire::DEFAULT);
        let seconds = |seconds: u64| i64::try_from(seconds).ok();
        Some(Self {
            age: seconds(now.saturating_sub(last))?,
            fail: seconds(io_timeout.renewal_fail_secs())?,
            dead: seconds(io_timeout.host_dead_secs(fire))?,
        })
    }
}

fn io_timeout(view: &LockspaceView) -> Option<IoTimeout> {
    IoTimeout::new(u32::try_from(view.number("io_timeout")?).ok()?).ok()
}

fn limits(page: &mut Page, scrape: &Scrape) {
    let budget = |view: &LockspaceView| Budget::of(view, scrape);
    let name = "sanlock_lockspace_io_timeout_seconds";
    each(page, scrape, name, "The io timeout.", |view| io_timeout(view).map(IoTimeout::secs));
    let name = "sanlock_lockspace_renewal_age_seconds";
    each(page, scrape, name, "Age of the last good renewal.", |view| Some(budget(view)?.age));
    let name = "sanlock_lockspace_renewal_budget_ratio";
    let help = "Age of the last good renewal as a part of the time after which the lockspace fails and its users are stopped.";
    #[expect(clippy::cast_precision_loss, reason = "seconds, for people")]
    each(page, scrape, name, help, |view| budget(view).map(|b| b.age as f64 / b.fail as f64));
    let name = "sanlock_lockspace_fail_seconds_left";
    let help = "Time until the lockspace fails and its users are stopped, unless it is renewed; negative once that has happened.";
    each(page, scrape, name, help, |view| budget(view).map(|b| b.fail - b.age));
    let name = "sanlock_lockspace_dead_seconds_left";
    let help = "Time until other hosts may take this host for dead, unless it is renewed.";
    each(page, scrape, name, help, |view| budget(view).map(|b| b.dead - b.age));
}

fn hosts_and_leases(page: &mut Page, scrape: &Scrape) {
    page.family("sanlock_hosts", Kind::Gauge, "Hosts seen in a lockspace, by state.");
    for (lockspace, view) in &scrape.lockspaces {
        for ((_, state), count) in HOST_STATES.iter().zip(view.hosts.unwrap_or_default()) {
            if view.hosts.is_some() {
                page.sample(&[("lockspace", lockspace), ("state", state)], count);
            }
        }
    }
    let help = "Host ids whose record on the disk is damaged: nobody can take what such a host holds.";
    each(page, scrape, "sanlock_hosts_damaged", help, |view| view.damaged_hosts.filter(|_| view.joined));
    let help = "Leases of this host; a shared one that is held counts once for each holder.";
    page.family("sanlock_leases", Kind::Gauge, help);
    for (lockspace, view) in &scrape.lockspaces {
        for ((_, state), counts) in LEASE_LISTS.iter().zip(view.leases) {
            for (mode, count) in ["exclusive", "shared"].iter().zip(counts) {
                page.sample(&[("lockspace", lockspace), ("state", state), ("mode", mode)], count);
            }
        }
    }
}

fn renewals(page: &mut Page, scrape: &Scrape) {
    let known = || scrape.lockspaces.iter().filter_map(|(ls, view)| Some((ls, view.renewals.as_ref()?)));
    let help = "How long the reads and writes of renewals took.";
    page.family("sanlock_renewal_duration_seconds", Kind::Histogram, help);
    for (lockspace, renewals) in known() {
        let mut show = |io: &str, durations: &Durations| {
            let labels = [("lockspace", lockspace.as_str()), ("io", io)];
            page.histogram(&labels, &BOUNDS, &durations.counts, durations.sum());
        };
        show("read", &renewals.reads);
        show("write", &renewals.writes);
    }
    let mut count = |name: &'static str, help: &str, value: fn(&Renewals) -> u64| {
        page.family(name, Kind::Counter, help);
        for (lockspace, renewals) in known() {
            page.sample(&[("lockspace", lockspace)], value(renewals));
        }
    };
    count("sanlock_renewal_timeouts_total", "Renewals that timed out.", |renewals| renewals.timeouts);
    count("sanlock_renewal_errors_total", "Renewals that failed otherwise.", |renewals| renewals.errors);
}

fn counters(page: &mut Page, scrape: &Scrape) {
    if let Some(counters) = &scrape.counters {
        let help = "Commands answered, by what they came to.";
        page.family("sanlock_requests_total", Kind::Counter, help);
        for ((_, command), counted) in COUNTED.iter().zip(&counters.commands) {
            for (outcome, count) in Outcome::ALL.iter().zip(counted.outcomes) {
                page.sample(&[("command", command), ("outcome", outcome.word())], count);
            }
        }
        let help = "How long commands took from their arrival to their answer.";
        page.family("sanlock_request_duration_seconds", Kind::Histogram, help);
        for ((_, command), counted) in COUNTED.iter().zip(&counters.commands) {
            latencies(page, command, "done", &counted.done);
            latencies(page, command, "failed", &counted.failed);
        }
    }
    if !scrape.depths.is_empty() {
        let help = "What waits in the daemon, or is under way, by where.";
        page.family("sanlock_queue_depth", Kind::Gauge, help);
        for (queue, depth) in &scrape.depths {
            page.sample(&[("queue", queue)], depth);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "bounds are exact, and the sum is for people")]
fn latencies(page: &mut Page, command: &str, result: &str, latencies: &Latencies) {
    let bounds = LATENCY_BOUNDS_US.map(|us| us as f64 / 1e6);
    let sum = latencies.sum_us as f64 / 1e6;
    page.histogram(&[("command", command), ("result", result)], &bounds, &latencies.counts, sum);
}
