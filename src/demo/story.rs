//! The steps of the demo.

use super::host::{Host, Process, text};
use super::storage::Storage;
use super::{LOCKSPACE, Narrator, RESOURCE, StepFailed};
use crate::cli::command::DemoArgs;
use crate::configured::likely_fire_timeout;
use crate::output::print;
use nix::sys::signal::Signal;
use sanlock_lease::timing::IoTimeout;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Adds the step's name to an error.
trait InStep<T> {
    fn step(self, step: &'static str) -> Result<T, StepFailed>;
}

impl<T> InStep<T> for Result<T, String> {
    fn step(self, step: &'static str) -> Result<T, StepFailed> {
        self.map_err(|reason| StepFailed { step, reason })
    }
}

pub(super) fn tell(args: &DemoArgs, narrator: &Narrator) -> Result<(), StepFailed> {
    let storage = Storage::prepare(args).step("prepare storage")?;
    let path = storage.leases.display().to_string().replace('\\', "\\\\").replace(':', "\\:");
    let resource = format!("{LOCKSPACE}:{RESOURCE}:{path}:{}", storage.resource_at);
    narrator.say(format_args!("two hosts, alpha and beta, share nothing but {}", storage.leases.display()));
    if !args.quick {
        narrator.detail(
            "the whole demo takes about 75 s, most of it waiting for a dead host; --quick leaves that out",
        );
    }

    let alpha = Host::start(storage.dir.path(), "alpha").step("start the daemon of alpha")?;
    let mut beta = Host::start(storage.dir.path(), "beta").step("start the daemon of beta")?;
    narrator.say("both daemons run, without watchdog: nothing would reset a host that hangs");

    alpha
        .expect(["direct", "init", "-s", &format!("{LOCKSPACE}:0:{path}:0"), "-o", super::IO_TIMEOUT])
        .step("init lockspace")?;
    alpha.expect(["direct", "init", "-r", &resource]).step("init resource")?;
    narrator.say("lockspace \"demo\" and resource \"disk1\" are initialised");

    join_both(&alpha, &beta, &path, narrator)?;

    let mut owner = alpha.hold(&resource).step("acquire on alpha")?;
    narrator.say(format_args!("alpha: process {} holds disk1", owner.pid()));

    refuse(&beta, &resource, narrator)?;

    let pid = owner.pid().to_string();
    alpha.expect(["client", "release", "-r", &resource, "-p", &pid]).step("release on alpha")?;
    narrator.say(format_args!("alpha: process {pid} releases disk1"));
    let mut next = beta.hold(&resource).step("hand over to beta")?;
    narrator.say(format_args!("beta:  process {} holds disk1: handed over", next.pid()));
    owner.kill();

    let killed = Instant::now();
    next.kill();
    narrator.say("beta:  that process is killed; its daemon releases the lease");
    let mut owner = acquire_soon(&alpha, &resource).step("release after the process died")?;
    narrator.say(format_args!(
        "alpha: process {} holds disk1, {:.2} s later",
        owner.pid(),
        killed.elapsed().as_secs_f64()
    ));
    owner.kill();

    if !args.quick {
        take_over(&alpha, &mut beta, &resource, narrator)?;
    }
    alpha.expect(["client", "shutdown", "-f", "1", "-w", "1"]).step("shut alpha down")?;
    narrator.say("alpha: left the lockspace and shut down");
    Ok(())
}

fn join_both(alpha: &Host, beta: &Host, path: &str, narrator: &Narrator) -> Result<(), StepFailed> {
    let begun = Instant::now();
    let joins = [
        (alpha, alpha.join(&format!("{LOCKSPACE}:1:{path}:0")).step("join")?),
        (beta, beta.join(&format!("{LOCKSPACE}:2:{path}:0")).step("join")?),
    ];
    for (host, join) in joins {
        let output = join.output().step("join")?;
        if !output.status.success() {
            return Err(format!("{}: {}", host.name, text(&output))).step("join");
        }
    }
    narrator.say(format_args!(
        "both have joined, at once, in {:.1} s: alpha as host 1, beta as host 2",
        begun.elapsed().as_secs_f64()
    ));
    Ok(())
}

fn refuse(host: &Host, resource: &str, narrator: &Narrator) -> Result<(), StepFailed> {
    const STEP: &str = "refuse beta";
    let output = host.run(["client", "command", "-r", resource, "-c", "/bin/true"]).step(STEP)?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() || !stdout.contains("acquire done -243") {
        return Err(format!("expected \"acquire done -243\", got: {}", text(&output))).step(STEP);
    }
    narrator.say("beta:  is refused, and told why:");
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        narrator.detail(line);
    }
    Ok(())
}

/// Acquires, trying again while the other host is still releasing.
fn acquire_soon(host: &Host, resource: &str) -> Result<Process, String> {
    const TRIES: u32 = 100;
    let mut last = String::new();
    for _ in 0..TRIES {
        match host.hold(resource) {
            Ok(process) => return Ok(process),
            Err(e) => last = e,
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(last)
}

fn take_over(alpha: &Host, beta: &mut Host, resource: &str, narrator: &Narrator) -> Result<(), StepFailed> {
    const STEP: &str = "take over from a dead host";
    let mut victim = acquire_soon(beta, resource).step(STEP)?;
    narrator.say(format_args!("beta:  process {} holds disk1 again", victim.pid()));
    beta.crash();
    victim.kill();
    let dead = IoTimeout::new(1).map_or(0, |t| t.host_dead_secs(likely_fire_timeout()));
    narrator.say("beta:  the host dies: daemon and process are gone, nothing was released");
    narrator.say(format_args!(
        "alpha: waits until beta is certainly dead: {dead} s without a renewal (8 x io timeout + watchdog)"
    ));
    let begun = Instant::now();
    let mut waiter = alpha.spawn(["client", "command", "-r", resource]).step(STEP)?;
    // A live owner is refused at once; right after the crash beta still counts as alive.
    while !alpha.holds(&waiter) {
        if waiter.ended().is_some() {
            if begun.elapsed() > Duration::from_secs(dead) {
                return Err(waiter.output().map(|o| text(&o)).unwrap_or_default()).step(STEP);
            }
            waiter = alpha.spawn(["client", "command", "-r", resource]).step(STEP)?;
        }
        if begun.elapsed() > Duration::from_secs(2 * dead) {
            waiter.signal(Signal::SIGTERM);
            return Err(format!("no lease after {} s", begun.elapsed().as_secs())).step(STEP);
        }
        progress(begun.elapsed().as_secs(), dead);
        std::thread::sleep(Duration::from_millis(500));
    }
    end_progress();
    narrator.say(format_args!(
        "alpha: process {} holds disk1, {:.0} s after beta died",
        waiter.pid(),
        begun.elapsed().as_secs_f64()
    ));
    waiter.kill();
    Ok(())
}

/// A line that counts down: rewritten on a terminal, every ten seconds elsewhere.
fn progress(elapsed: u64, dead: u64) {
    let left = dead.saturating_sub(elapsed);
    let mut out = std::io::stdout();
    let written = if out.is_terminal() {
        write!(out, "\r           | beta may be taken for dead in about {left:3} s ")
    } else if elapsed % 10 == 0 && LAST.swap(elapsed, std::sync::atomic::Ordering::Relaxed) != elapsed {
        writeln!(out, "           | beta may be taken for dead in about {left} s")
    } else {
        Ok(())
    };
    let _closed_pipe = written.and_then(|()| out.flush());
}

/// The last second for which a line was printed where lines cannot be rewritten.
static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(u64::MAX);

fn end_progress() {
    if std::io::stdout().is_terminal() {
        print(format!("\r{:60}\r", ""));
    }
}
