//! One client of the mixed run ([`sanlock_conformance::mixed`]).
//!
//! Arguments: RUN_DIR DIR LABEL HOST_ID PROGRAM SEED MILLISECONDS player|renamer. Prints a line for each operation; ends with a
//! panic that says what is wrong.

use std::path::Path;
use std::time::{Duration, Instant};

use sanlock_conformance::Program;
use sanlock_conformance::dice::Dice;
use sanlock_conformance::mixed::client::{Client, Identity};
use sanlock_conformance::mixed::moves::Player;
use sanlock_conformance::mixed::site::Site;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [run_dir, dir, label, host_id, program, seed, millis, role] = args.as_slice() else {
        panic!("usage: mixed_client RUN_DIR DIR LABEL HOST_ID PROGRAM SEED MILLISECONDS player|renamer");
    };
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{text:?} is not a number"));
    let program = [Program::Ours, Program::Reference].into_iter().find(|known| known.word() == program);
    let Some(program) = program else { panic!("no such program") };
    let me = Identity { label: label.clone(), run_dir: run_dir.into(), host_id: number(host_id), program };
    let end = Instant::now() + Duration::from_millis(number(millis));
    let client = Client::start(me, Site::new(Path::new(dir)));
    Player::new(client, Dice::new(label, number(seed)), role == "renamer").play(end);
}
