//! What `--json` shows (docs/json.md).

use super::scan::{Area, Body, Place, Scan};
use super::show;
use crate::json::Text;
use sanlock_lease::fsck::{Finding, Fix, Level};
use sanlock_lease::name::Name;
use serde::Serialize;

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    damaged: usize,
    notes: usize,
    areas: Vec<AreaShown>,
    remarks: Vec<String>,
}

#[derive(Debug, Serialize)]
struct AreaShown {
    path: Text,
    offset: u64,
    kind: &'static str,
    sector_size: u32,
    align_size: u64,
    lockspace: Option<Text>,
    resource: Option<Text>,
    summary: String,
    findings: Vec<FindingShown>,
}

#[derive(Debug, Serialize)]
struct FindingShown {
    problem: &'static str,
    level: &'static str,
    /// From the start of the storage.
    offset: u64,
    sector: u64,
    what: String,
    found: String,
    expected: String,
    means: &'static str,
    advice: &'static str,
    repair: Option<String>,
}

impl Report {
    pub(super) fn of(places: &[Place], scan: &Scan) -> Self {
        let count = |level| scan.findings().filter(|(_, f)| f.problem.level() == level).count();
        Self {
            damaged: count(Level::Damage),
            notes: count(Level::Note),
            areas: scan.areas.iter().map(|area| shown(places, area)).collect(),
            remarks: scan.remarks.clone(),
        }
    }
}

fn shown(places: &[Place], area: &Area) -> AreaShown {
    let text = |name: Name| Text::from(name.as_bytes());
    let (kind, resource) = match &area.body {
        Body::Lockspace(_) => ("lockspace", None),
        Body::Resource(report) => ("resource", report.known.map(|k| text(k.name))),
        Body::Index(_) => ("index", None),
    };
    AreaShown {
        path: Text::from(places.get(area.place).map_or(&[][..], |place| &place.path)),
        offset: area.offset,
        kind,
        sector_size: area.geometry.sector().bytes(),
        align_size: area.geometry.align().bytes(),
        lockspace: area.lockspace().map(text),
        resource,
        summary: show::summary(area),
        findings: area.findings.iter().map(|finding| told(area, finding)).collect(),
    }
}

fn told(area: &Area, finding: &Finding) -> FindingShown {
    FindingShown {
        problem: finding.problem.code(),
        level: match finding.problem.level() {
            Level::Damage => "damage",
            Level::Note => "note",
        },
        offset: area.offset.saturating_add(finding.spot.at),
        sector: finding.spot.sector,
        what: finding.what.clone(),
        found: finding.found.clone(),
        expected: finding.expected.clone(),
        means: finding.problem.means(),
        advice: finding.problem.advice(),
        repair: finding.fix.as_ref().map(Fix::text),
    }
}
