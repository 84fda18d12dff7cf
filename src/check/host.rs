//! The machine: clock, watchdog, wdmd, limits, the daemon that may run.

use super::finding::Findings;
use super::options;
use super::rate;
use super::root::Root;
use super::storage;
use sanlock_daemon::config::{Config, on_fail};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use sanlock_wdmd::decide::{test_interval, wanted_device_timeout};

/// Where wdmd listens.
const WDMD_SOCKET: &str = "/run/wdmd/wdmd.sock";
/// The watchdog device, whoever made it, and what the one of IPMI does, which is outside the watchdog core.
const MISC_WATCHDOG: &str = "/sys/class/misc/watchdog";
const IPMI_ACTION: &str = "/sys/module/ipmi_watchdog/parameters/action";
/// Drivers that the kernel itself carries out, by what they call themselves.
const SOFTWARE_WATCHDOGS: [&str; 2] = ["Software Watchdog", "softdog"];
/// Clock sources that stand still when timer interrupts are lost.
const POOR_CLOCKS: [&str; 2] = ["jiffies", "refined-jiffies"];
/// Seconds between 6T and wdmd's test interval that should be left (rule R11).
const SLACK_SECS: u64 = 2;

/// Says what is wrong with the machine. `config` is the daemon's.
pub(super) fn judge(root: &Root, config: &Config, io_timeout: IoTimeout, found: &mut Findings) {
    clock(root, found);
    if let Some(why) = &config.fire_doubt {
        found.problem(
            "fire-timeout-unknown",
            why.as_str(),
            "the daemon does not start: the other hosts count on the watchdog fire timeout, so none is assumed",
            "correct the line as it is on the other hosts, or remove it if they have none",
        );
    }
    rate::judge(root, io_timeout, config.fire, found);
    let without = options::without_watchdog(root, config);
    for place in &without {
        found.warning(
            "watchdog-not-used",
            place.as_str(),
            "a process that cannot be killed in time may still write when another host has taken its lease over",
            "use it where data matters: leave that out, start wdmd before sanlock, and start sanlock again",
        );
    }
    if without.is_empty() {
        watchdog(root, config.fire, found);
        interval(io_timeout, config.fire, found);
    }
    async_io(root, found);
    daemon(root, config, found);
    storage::user(root, config, found);
    programs(root, config, found);
    if let Some(text) = config.grace_excess() {
        found.warning(
            "grace-too-long",
            text,
            "a process whose killpath does nothing goes on until the machine is reset",
            "make kill_grace_seconds shorter, or leave it out",
        );
    }
    if let Some(text) = config.read_extend_excess(io_timeout) {
        found.warning(
            "read-extend-too-long",
            text,
            "a read of a renewal that is lost is not made good in time",
            "make renewal_read_extend_sec shorter, or leave it out",
        );
    }
    for warning in &config.warnings {
        found.note("configuration", warning.to_string(), "the setting has no effect", "mend or remove it");
    }
}

/// Programs of `on_fail`, below the root as it is.
fn programs(root: &Root, config: &Config, found: &mut Findings) {
    for (key, program) in config.on_fail.programs() {
        let Some(why) = program.to_str().and_then(|path| on_fail::trouble(&root.at(path))) else { continue };
        found.warning(
            "on-fail",
            format!("{key} = {}: {why}", program.display()),
            "when a lockspace fails, nobody does what that program is for",
            "install it, let its owner execute it (chmod +x), or correct the line in sanlock.conf",
        );
    }
}

fn clock(root: &Root, found: &mut Findings) {
    let current = root.text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if let Some(clock) = current.filter(|clock| POOR_CLOCKS.contains(&clock.as_str())) {
        found.warning(
            "clock",
            format!("the kernel's clock source is {clock}"),
            "it stands still when interrupts are lost, and renewals are timed by it: this host may believe to be alive when others take it for dead",
            "boot with a hardware clock source; available_clocksource beside that file lists them",
        );
    }
}

fn watchdog(root: &Root, fire: WatchdogFire, found: &mut Findings) {
    let devices = root.names("/sys/class/watchdog");
    let wdmd = root.listens(WDMD_SOCKET);
    if !wdmd {
        found.problem(
            "wdmd",
            format!("wdmd does not run: nobody listens on {WDMD_SOCKET}"),
            "sanlock adds no lockspace without it (-203)",
            "start wdmd before sanlock",
        );
    }
    if devices.is_empty() && root.is_there(MISC_WATCHDOG) {
        return outside_the_core(root, found);
    }
    if devices.is_empty() {
        found.problem(
            "no-watchdog",
            "there is no watchdog device (/sys/class/watchdog is empty)",
            "wdmd does not start, and nothing stops this host when its processes cannot be killed",
            "load the driver of the hardware's watchdog, or softdog, at every boot (/etc/modules-load.d)",
        );
        return;
    }
    let needed = u64::from(wanted_device_timeout(seconds(fire)).unwrap_or(0));
    let mut usable = 0;
    for device in &devices {
        let file = |name: &str| root.text(&format!("/sys/class/watchdog/{device}/{name}"));
        let identity = file("identity").unwrap_or_else(|| "unknown".to_owned());
        let longest = file("max_timeout").and_then(|text| text.parse::<u64>().ok()).filter(|max| *max != 0);
        let is_busy = file("state").is_some_and(|state| state == "active") && !wdmd;
        if let Some(max) = longest.filter(|max| *max < needed) {
            found.warning(
                "watchdog-too-short",
                format!("{device} ({identity}) takes timeouts up to {max} s"),
                "wdmd needs a longer one and cannot use it",
                &format!(
                    "use another device; with a watchdog_fire_timeout of {} it needs {needed} s",
                    fire.secs()
                ),
            );
        } else if is_busy {
            found.problem(
                "watchdog-busy",
                format!("{device} ({identity}) is in use, and not by wdmd"),
                "a watchdog has one user: wdmd cannot open it",
                "find the other one: RuntimeWatchdogSec in systemd's system.conf, the watchdog daemon, or a monitoring agent",
            );
        } else {
            usable += 1;
        }
        if SOFTWARE_WATCHDOGS.iter().any(|soft| identity.contains(soft)) && devices.len() == 1 {
            found.note(
                "software-watchdog",
                format!("the only watchdog is the kernel's own ({identity})"),
                "it resets a host whose processes hang, but not one whose kernel does",
                "use the hardware's watchdog where there is one",
            );
        }
        if file("nowayout").is_some_and(|text| text != "0") {
            found.note(
                "watchdog-no-way-out",
                format!("{device} ({identity}) cannot be stopped once it is open (nowayout)"),
                "once a client has had it started wdmd refuses to stop, and a shutdown takes some 150 s longer; the original's stops, and the machine is reset",
                "load its driver without nowayout, unless that is wanted",
            );
        }
    }
    if usable == 0 {
        found.problem(
            "no-usable-watchdog",
            format!("none of {} watchdog device(s) can be used", devices.len()),
            "wdmd does not start, and nothing stops this host when its processes cannot be killed",
            "see the findings about each of them",
        );
    }
}

/// A driver that makes `/dev/watchdog` itself, as IPMI's does.
fn outside_the_core(root: &Root, found: &mut Findings) {
    if root.text(IPMI_ACTION).is_some_and(|action| action == "none") {
        found.problem(
            "watchdog-without-action",
            "the only watchdog is that of IPMI, whose module was loaded with action=none",
            "it would reset nothing, and wdmd does not use it",
            "load ipmi_watchdog with action=reset or power_cycle (/etc/modprobe.d)",
        );
    } else {
        found.note(
            "watchdog-not-judged",
            "the only watchdog is outside the kernel's watchdog core, as that of IPMI is",
            "which timeouts it takes cannot be seen here",
            "while no wdmd runs 'wdmd --trytimeout 15' tries it",
        );
    }
}

/// wdmd looks at its clients now and then: a lockspace has to be renewed in between (rule R11).
fn interval(io_timeout: IoTimeout, fire: WatchdogFire, found: &mut Findings) {
    let interval = u64::from(test_interval(seconds(fire)));
    let (budget, timeout) = (io_timeout.renewal_warn_secs(), io_timeout.secs());
    let advice = "use a longer io timeout (-o, io_timeout in sanlock.conf) for the lockspace";
    if budget <= interval {
        found.problem(
            "io-timeout-too-short",
            format!("io timeout {timeout} s with a watchdog that is tested every {interval} s"),
            "sanlock refuses such a lockspace (-22): a renewal in time would look like none",
            advice,
        );
    } else if budget <= interval + SLACK_SECS {
        found.warning(
            "io-timeout-short",
            format!("io timeout {timeout} s with a watchdog that is tested every {interval} s"),
            "a renewal that is a little late looks like none",
            advice,
        );
    }
}

/// At most an hour.
fn seconds(fire: WatchdogFire) -> u32 {
    u32::try_from(fire.secs()).unwrap_or(u32::MAX)
}

fn async_io(root: &Root, found: &mut Findings) {
    let number = |file: &str| root.number(&format!("/proc/sys/fs/{file}"));
    if let (Some(used), Some(max)) = (number("aio-nr"), number("aio-max-nr")) {
        if used.saturating_mul(10) >= max.saturating_mul(9) {
            found.warning(
                "aio-exhausted",
                format!("{used} of {max} asynchronous I/O requests of the whole machine are taken (fs.aio-max-nr)"),
                "where io_uring is not allowed 'sanlock direct' needs a thread for each operation; other programs may fail",
                "raise fs.aio-max-nr with sysctl",
            );
        }
    }
}

/// A daemon that runs: is it what its configuration says?
fn daemon(root: &Root, config: &Config, found: &mut Findings) {
    let number = |path: &str| root.number(path);
    if config.high_priority != 0 && number("/proc/sys/kernel/sched_rt_runtime_us") == Some(0) {
        found.warning(
            "no-real-time",
            "kernel.sched_rt_runtime_us is 0: no real-time process runs",
            "sanlock.conf asks for real-time scheduling (high_priority)",
            "set it to its default, 950000",
        );
    }
    let Some((pid, status)) = options::daemon(root) else { return };
    let Some(status) = status else {
        found.note(
            "not-running",
            format!("no daemon runs: /run/sanlock/sanlock.pid names process {pid}, which is none"),
            "it was stopped, or it was killed or failed",
            "start it if this host is to hold leases; its log says how it ended",
        );
        return;
    };
    let kilobytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.trim().split(' ').next()?.parse::<u64>().ok()
    };
    if config.mlock_level != 0 && kilobytes("VmLck") == Some(0) {
        found.warning(
            "not-locked",
            format!("the daemon (process {pid}) has no memory locked, although mlock_level is {}", config.mlock_level),
            "when memory is short, or swap lies on the storage that fails, it stands still and this host is reset",
            "give it the limit: LimitMEMLOCK=infinity in its unit, or start it as root",
        );
    }
    // Fields 40 and 41 of stat(5), counted behind the name, which may hold blanks.
    let policy = root.text(&format!("/proc/{pid}/stat")).and_then(|stat| {
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_whitespace().nth(38)?.parse::<u32>().ok()
    });
    if config.high_priority != 0 && policy == Some(0) {
        found.warning(
            "not-real-time",
            format!("the daemon (process {pid}) is scheduled like any other, although high_priority is set"),
            "on a busy machine renewals come late",
            "give it the limit: LimitRTPRIO=infinity in its unit, or start it as root",
        );
    }
}
