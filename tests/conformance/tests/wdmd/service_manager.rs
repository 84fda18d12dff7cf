//! What a service manager is told (`Type=notify` of systemd). The original knows nothing of it.

use std::os::unix::net::UnixDatagram;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use sanlock_conformance::bounded::Running;
use sanlock_conformance::storage::text;
use sanlock_conformance::wdmd::SOON;
use sanlock_conformance::{Machine, Program};

#[test]
fn a_wdmd_that_is_waited_for_stays_and_says_when_it_serves() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program == Program::Reference {
        return;
    }
    let machine = Machine::new(program);
    let path = machine.scripts().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(SOON)).unwrap();
    let script = "SYSTEMD_EXEC_PID=$$ exec \"$0\" -G root";
    let wdmd = program.wdmd_path();
    let mut command = machine.command_of(Path::new("/bin/sh"), &["-c", script, text(&wdmd)]);
    command.env("NOTIFY_SOCKET", &path);
    let mut running = Running::start(command);
    let mut bytes = [0; 100];
    let len = manager.recv(&mut bytes).unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes[..len]), "READY=1\n");
    assert_eq!(machine.pid_file(), format!("{}\n", running.pid()));
    kill(Pid::from_raw(i32::try_from(running.pid()).unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(running.finish(SOON).code, 0);
}
