//! `sanlock top` in a real terminal, beside our daemon; as text also beside the original's.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use sanlock_conformance::bounded;
use sanlock_conformance::host::pid_of;
use sanlock_conformance::storage::LOCKSPACE;
use sanlock_conformance::{Holder, Program, Scene, Storage, Terminal};

/// Types a command that starts `sanlock top`, and says how it ended and whether the terminal is as before.
fn start(terminal: &Terminal, options: &str) {
    let dir = terminal.scratch();
    // In a script: an interactive shell has words of its own about a program that a signal has ended.
    let script = format!(
        "cd {}; stty -g >before; sh -c 'echo $$ >pid; exec sanlock top {options}'; echo ended=$?; stty -g >after; cmp before after && echo restored",
        dir.display()
    );
    std::fs::write(dir.join("script"), script).unwrap_or_else(|error| panic!("{error}"));
    terminal.line(&format!("clear; sh {}", dir.join("script").display()));
}

/// The shell is back, and nothing of the screen is left.
fn ended(terminal: &Terminal, status: i32) {
    let screen = terminal.wait_for("restored");
    assert!(screen.contains(&format!("ended={status}")), "{screen}");
    assert!(!screen.contains("q quit"), "the screen was not left:\n{screen}");
}

/// Whether there is a colour on the screen; bold and reversed are none.
fn coloured(terminal: &Terminal) -> bool {
    let screen = terminal.colours();
    (31..38).any(|colour| screen.contains(&format!("\x1b[{colour}m"))) || screen.contains("\x1b[38;5;")
}

fn scene() -> (Scene, Holder) {
    let scene = Scene::two_hosts(Program::Ours, 2);
    scene.wait_until_all_see_all();
    let shared = format!("{}:SH", scene.storage().resource_arg(2));
    let holder = Holder::start(scene.host(0), &[&scene.storage().resource_arg(1), &shared]);
    (scene, holder)
}

#[test]
fn the_screen_shows_lockspaces_hosts_and_leases_and_obeys_keys_and_sizes() {
    let (scene, holder) = scene();
    let Some(terminal) = Terminal::open(scene.host(0), &[]) else { return };
    start(&terminal, "--interval 1");
    let pid = holder.pid().to_string();
    let screen = terminal.wait_until("everything", |screen| {
        [LOCKSPACE, "host1", "host2", "LIVE", "R1", "exclusive", "R2", "shared", &pid, "▁"]
            .iter()
            .all(|words| screen.contains(words))
    });
    assert!(screen.lines().nth(23).is_some_and(|keys| keys.starts_with(" q quit")), "{screen}");
    assert!(coloured(&terminal), "what is well is green");

    terminal.key("?");
    let _ = terminal.wait_for("'sanlock who'");
    terminal.key("x");
    let _ = terminal.wait_for("sort: name");
    terminal.key("s");
    let _ = terminal.wait_for("least left first");
    terminal.resize(60, 14);
    let _ = terminal.wait_until("a smaller screen", |screen| {
        screen.lines().nth(13).is_some_and(|keys| keys.starts_with(" q quit"))
    });
    terminal.resize(30, 5);
    let _ = terminal.wait_for("is too small");
    terminal.resize(80, 24);
    let _ = terminal.wait_for("least left first");
    terminal.key("q");
    ended(&terminal, 0);
}

#[test]
fn a_daemon_that_stands_still_or_goes_away_is_shown_and_so_is_its_return() {
    let mut scene = Scene::not_joined(Program::Ours, 0);
    let Some(terminal) = Terminal::open(scene.host(0), &[("NO_COLOR", "1")]) else { return };
    start(&terminal, "--interval 1");
    let _ = terminal.wait_for("in no lockspace");
    let daemon = pid_of(scene.host(0).pid());
    kill(daemon, Signal::SIGSTOP).unwrap_or_else(|error| panic!("{error}"));
    let _ = terminal.wait_for("NO ANSWER for");
    kill(daemon, Signal::SIGCONT).unwrap_or_else(|error| panic!("{error}"));
    let _ = terminal.wait_for("0 lockspaces");
    scene.host_mut(0).kill();
    let screen = terminal.wait_for("NO DAEMON");
    assert!(screen.contains("host1"), "its last answer stays:\n{screen}");
    assert!(!coloured(&terminal), "NO_COLOR is set");
    scene.host_mut(0).restart();
    let _ = terminal.wait_for("0 lockspaces");
    terminal.key("C-c");
    ended(&terminal, 0);
}

#[test]
fn signals_end_or_stop_it_and_the_terminal_is_as_before() {
    let scene = Scene::not_joined(Program::Ours, 0);
    let Some(terminal) = Terminal::open(scene.host(0), &[]) else { return };
    for (signal, status) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGQUIT, 131)] {
        start(&terminal, "");
        let _ = terminal.wait_for("in no lockspace");
        let pid = std::fs::read_to_string(terminal.scratch().join("pid")).unwrap_or_else(|e| panic!("{e}"));
        let pid = pid.trim().parse().unwrap_or_else(|error| panic!("{pid}: {error}"));
        kill(pid_of(pid), signal).unwrap_or_else(|error| panic!("{error}"));
        ended(&terminal, status);
    }
    terminal.line("clear; sanlock top");
    let _ = terminal.wait_for("in no lockspace");
    terminal.key("C-z");
    let _ = terminal.wait_for("Stopped");
    terminal.line("fg");
    let _ = terminal.wait_for("in no lockspace");
    terminal.key("q");
    let _ = terminal.wait_until("the shell", |screen| !screen.contains("q quit"));
}

/// A lost connection: it ends, and does not look for keys on a terminal that is no more, even if no signal tells it.
#[test]
fn it_ends_with_its_terminal() {
    let scene = Scene::not_joined(Program::Ours, 0);
    for trap in ["", "trap '' HUP; "] {
        let Some(terminal) = Terminal::open(scene.host(0), &[]) else { return };
        terminal.line(&format!(
            "clear; cd {}; sh -c 'echo $$ >pid; {trap}exec sanlock top'",
            terminal.scratch().display()
        ));
        let _ = terminal.wait_for("in no lockspace");
        let pid = std::fs::read_to_string(terminal.scratch().join("pid")).unwrap_or_else(|e| panic!("{e}"));
        let process = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
        assert!(process.exists());
        terminal.close();
        bounded::wait_until("its end", Duration::from_secs(60), || !process.exists());
    }
}

#[test]
fn without_a_terminal_it_says_what_to_do_and_prints_everything_once() {
    for program in [Program::Ours, Program::Reference].into_iter().filter(|program| program.available()) {
        let scene = Scene::asked_by(Storage::file(), program, Program::Ours, 2, 1);
        scene.wait_until_all_see_all();
        let host = scene.host(0);
        let holder = Holder::start(host, &[&scene.storage().resource_arg(1)]);
        let output = host.client(&["top"]);
        assert_eq!((output.code, output.stdout.as_str()), (1, ""));
        assert!(output.stderr.contains("must be a terminal; 'sanlock top --once'"), "{output}");

        let once = |args: &[&str]| host.client(&[&["top", "--once"], args].concat());
        bounded::wait_until("a renewal", Duration::from_secs(60), || once(&[]).stdout.contains(" ok "));
        let output = once(&[LOCKSPACE]).success();
        let pid = holder.pid().to_string();
        for words in ["host1", "host2", "LIVE", "R1", "exclusive", &pid, scene.storage().path()] {
            assert!(output.stdout.contains(words), "{}: {words}: {output}", program.word());
        }
        assert_eq!(output.stderr, "");
        let output = once(&["nothing"]);
        assert!(output.code == 1 && output.stderr.contains("in no lockspace nothing"), "{output}");
        let command = host.command(&["top", "--once"]);
        let mut full = std::process::Command::new("sh");
        full.args(["-c", "exec \"$@\" >/dev/full", "sh"]).arg(command.get_program()).args(command.get_args());
        full.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = bounded::run(full, Duration::from_secs(30));
        assert!(output.code == 1 && output.stderr.contains("cannot be written: No space left"), "{output}");
        let mut away = host.command(&["top", "--once"]);
        away.env("SANLOCK_RUN_DIR", "/nonexistent");
        let output = bounded::run(away, Duration::from_secs(30));
        assert!(output.code == 1 && output.stderr.contains("is it running?"), "{output}");
    }
}
