//! The findings in words.

use super::scan::{Area, Body, Place, Scan};
use sanlock_lease::fsck::{Finding, Level, Problem};
use std::fmt::Write;

/// Findings of one kind in one area that are told in full.
const ALIKE_MAX: usize = 5;

/// What was looked at and what is wrong with it.
pub(super) fn report(places: &[Place], scan: &Scan, repairing: bool) -> String {
    let mut out = String::new();
    let path = |area: &Area| places.get(area.place).map(Place::shown).unwrap_or_default();
    for area in &scan.areas {
        let _ = writeln!(out, "{}:{}  {}", path(area), area.offset, summary(area));
    }
    for area in &scan.areas {
        let mut told: Vec<(Problem, usize)> = Vec::new();
        for finding in &area.findings {
            let count = match told.iter_mut().find(|(problem, _)| *problem == finding.problem) {
                Some((_, count)) => count,
                None => {
                    told.push((finding.problem, 0));
                    let Some((_, count)) = told.last_mut() else { continue };
                    count
                }
            };
            *count += 1;
            if *count <= ALIKE_MAX {
                tell(&mut out, &path(area), area, finding);
            }
        }
        for (problem, count) in told.into_iter().filter(|(_, count)| *count > ALIKE_MAX) {
            let more = count - ALIKE_MAX;
            let _ = writeln!(
                out,
                "\n{more} more of {} in the area at {}:{}",
                problem.code(),
                path(area),
                area.offset
            );
        }
    }
    let _ = writeln!(out);
    for remark in &scan.remarks {
        let _ = writeln!(out, "{remark}");
    }
    out.push_str(&total(scan, repairing));
    out
}

fn tell(out: &mut String, path: &str, area: &Area, finding: &Finding) {
    let level = match finding.problem.level() {
        Level::Damage => "DAMAGE",
        Level::Note => "note",
    };
    let at = area.offset.saturating_add(finding.spot.at);
    let _ = writeln!(
        out,
        "\n{level} {}: {path} at byte {at} (sector {} of the area at {})\n  \
         what      {}\n  found     {}\n  expected  {}\n  means     {}\n  do        {}",
        finding.problem.code(),
        finding.spot.sector,
        area.offset,
        finding.what,
        finding.found,
        finding.expected,
        finding.problem.means(),
        finding.problem.advice()
    );
    if let Some(fix) = &finding.fix {
        let _ = writeln!(out, "  repair    {}", fix.text());
    }
}

/// What an area is, in one line.
pub(super) fn summary(area: &Area) -> String {
    let sizes = format!("{:?}", area.geometry);
    match &area.body {
        Body::Lockspace(report) => {
            let held = report.hosts.iter().filter(|h| h.intact && h.timestamp != 0).count();
            let free = report.hosts.iter().filter(|h| h.intact && h.timestamp == 0).count();
            let damaged = report.hosts.iter().filter(|h| !h.intact).count();
            let damaged = if damaged == 0 { String::new() } else { format!(", {damaged} damaged") };
            format!(
                "lockspace {:?}, {sizes}: {held} host ids held, {free} free and used before{damaged}",
                report.name
            )
        }
        Body::Resource(report) => match report.known {
            None if report.cleared => format!("resource, {sizes}: cleared"),
            None => format!("resource, {sizes}: its leader cannot be believed"),
            Some(known) => {
                let state = match (known.owner, report.shared.len()) {
                    (Some((host, generation)), _) => {
                        format!("owned by host id {host}, generation {generation}")
                    }
                    (None, 0) => "free".to_owned(),
                    (None, holders) => format!("shared by {holders} hosts"),
                };
                format!(
                    "resource {:?} of lockspace {:?}, {sizes}: version {}, {state}",
                    known.name, known.lockspace, known.lver
                )
            }
        },
        Body::Index(report) => match &report.view {
            None => format!("resource index, {sizes}: its header is unusable"),
            Some(view) => format!(
                "resource index of lockspace {:?}, {sizes}: {} of {} entries used",
                view.lockspace(),
                report.used,
                view.count()
            ),
        },
    }
}

fn total(scan: &Scan, repairing: bool) -> String {
    if scan.areas.is_empty() {
        // As it was said of each place.
        return String::new();
    }
    let count = |level| scan.findings().filter(|(_, f)| f.problem.level() == level).count();
    let (damage, notes) = (count(Level::Damage), count(Level::Note));
    let fixes = scan.findings().filter(|(_, f)| f.fix.is_some()).count();
    let found = match (damage, notes) {
        (0, 0) if scan.nothing => "nothing is wrong with what was found".to_owned(),
        (0, 0) => "nothing is wrong".to_owned(),
        (0, notes) => format!("no damage, {notes} note(s)"),
        (damage, notes) => format!("{damage} damaged place(s), {notes} note(s)"),
    };
    let repair = match (fixes, repairing) {
        (0, _) | (_, true) => String::new(),
        (fixes, false) => format!("; {fixes} can be repaired with --repair, nothing was written"),
    };
    format!("{} area(s): {found}{repair}\n", scan.areas.len())
}
