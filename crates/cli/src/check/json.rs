//! The report for programs.

use serde_json::{Map, Value, json};

use super::checked::{Checked, Described};
use crate::arguments::CheckArguments;

pub(super) fn report(asked: &CheckArguments, checked: &Checked) -> String {
    let covered = checked.covered.iter();
    let covered = covered.map(|row| json!({ "request": row.request, "policies": row.policies }));
    let policies = checked.policies.iter().map(|policy| {
        let mut facts = facts(policy);
        facts.insert("policy".to_owned(), json!(policy.name));
        Value::Object(facts)
    });
    let report = json!({
        "limits": asked.limits.display().to_string(),
        "against": asked.against.as_ref().map(|old| old.display().to_string()),
        "policies": policies.collect::<Vec<_>>(),
        "under_pressure": checked.pressure.as_ref().map(facts),
        "examples": covered.collect::<Vec<_>>(),
        "never_pass": checked.never_pass,
        "to_register": checked.registered,
        "changes": checked.changes,
    });
    format!("{report:#}\n")
}

/// Each fact under its name: a list where there may be several.
fn facts(of: &Described) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("on_trial".to_owned(), json!(of.is_trial));
    for (name, words) in &of.facts {
        match *name {
            "tier" | "refuses" => {
                let list = facts.entry(*name).or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut() {
                    list.push(json!(words));
                }
            }
            name => {
                facts.insert(name.to_owned(), json!(words));
            }
        }
    }
    facts
}
