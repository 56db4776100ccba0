//! The repository keeps its own rules of style; see `xtask::tidy` for what they are.

#[test]
fn the_repository_is_tidy() {
    let findings = xtask::tidy::check(&xtask::repository()).expect("the repository can be read");
    let report: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(
        report.is_empty(),
        "{} findings:\n{}",
        report.len(),
        report.join("\n")
    );
}
