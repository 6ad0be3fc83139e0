//! jaq is the oracle: whatever the program and the value, the same bytes or the same refusal.

use proptest::prelude::*;

use super::Native;
use crate::transform::decode::Decoded;
use crate::transform::jq::{Limits, Program};

const LIMITS: Limits = Limits { outputs: 100, bytes: 1 << 20, text: false };

/// JSON as people and machines write it, and as nobody should.
fn json() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        (-20i64..20).prop_map(|n| n.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        Just("-0".to_owned()),
        Just("12345678901234567890123".to_owned()),
        Just("1.10".to_owned()),
        Just("1.0".to_owned()),
        Just("-2.5e+3".to_owned()),
        Just("1E400".to_owned()),
        Just("\"d\"".to_owned()),
        Just("\"\"".to_owned()),
        Just(r#""\u0064""#.to_owned()),
        Just(r#""a\/b\n\u00e9\ud83d\ude00""#.to_owned()),
        Just("\"\u{7f} é 😀\"".to_owned()),
        "[a-d ]{0,4}".prop_map(|text| format!("\"{text}\"")),
    ];
    let name = prop_oneof![8 => "[a-d]".prop_map(|n| format!("\"{n}\"")), 1 => Just(r#""\u0061""#.to_owned()), 1 => Just("\"x y\"".to_owned())];
    let space = prop_oneof![6 => Just(""), 1 => Just(" "), 1 => Just("\n\t")];
    scalar.prop_recursive(4, 32, 5, move |inner| {
        let (name, space) = (name.clone(), space.clone());
        let pair = (name, space.clone(), inner.clone(), space.clone())
            .prop_map(|(name, before, value, after)| format!("{before}{name}{after}:{before}{value}{after}"));
        let item = (space.clone(), inner).prop_map(|(space, value)| format!("{space}{value}{space}"));
        prop_oneof![
            3 => (proptest::collection::vec(pair, 0..5), space.clone()).prop_map(|(pairs, space)| format!("{{{space}{}}}", pairs.join(","))),
            1 => (proptest::collection::vec(item, 0..4), space).prop_map(|(items, space)| format!("[{space}{}]", items.join(","))),
        ]
    })
}

fn path() -> impl Strategy<Value = String> {
    let step = prop_oneof![6 => "\\.[a-d]", 1 => Just(".[0]".to_owned()), 1 => Just(".[2]".to_owned()), 1 => Just(".\"x y\"".to_owned()), 1 => Just("[\"a\"]".to_owned())];
    prop_oneof![
        1 => Just(".".to_owned()),
        9 => ("\\.[a-d]", proptest::collection::vec(step, 0..3)).prop_map(|(first, rest)| {
            let rest: String = rest.concat();
            format!("{first}{}", rest.replace(".[", "["))
        }),
    ]
}

fn program() -> impl Strategy<Value = String> {
    let literal = prop_oneof![
        Just("null"),
        Just("true"),
        Just("false"),
        Just("1"),
        Just("0"),
        Just("12"),
        Just("\"d\""),
        Just("\"\""),
        Just("1.0"),
        Just("\"é\""),
        Just("\"\\n\"")
    ];
    let comparison = prop_oneof![Just("=="), Just("!="), Just("<"), Just("<="), Just(">"), Just(">=")];
    let compared =
        (path(), comparison, literal.clone()).prop_map(|(path, how, literal)| format!("{path} {how} {literal}"));
    let condition = prop_oneof![path(), compared].prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) and ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) or ({b})")),
            inner.prop_map(|a| format!("({a} | not)")),
        ]
    });
    let value = prop_oneof![4 => path(), 1 => literal.prop_map(str::to_owned), 1 => condition.clone().prop_map(|c| format!("({c})"))];
    let made = value.prop_recursive(3, 16, 4, |inner| {
        let field = prop_oneof![3 => ("[a-e]", inner.clone()).prop_map(|(n, v)| format!("{n}: ({v})")), 1 => "[a-e]", 1 => inner.clone().prop_map(|v| format!("\"x y\": ({v})"))];
        prop_oneof![
            proptest::collection::vec(field, 0..5).prop_map(|fields| format!("{{{}}}", fields.join(", "))),
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            (path(), inner).prop_map(|(path, inner)| format!("{path} | {inner}")),
        ]
    });
    prop_oneof![
        4 => made.clone(),
        2 => (condition.clone(), made.clone()).prop_map(|(c, m)| format!("select({c}) | {m}")),
        1 => (path(), condition.clone(), made).prop_map(|(p, c, m)| format!("{p} | select({c}) | {m}")),
        1 => condition.clone().prop_map(|c| format!("select({c})")),
        1 => condition,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    #[test]
    fn native_programs_give_what_jaq_gives(program in program(), text in json()) {
        let quick = Program::compile(&program).expect("a jq program");
        let oracle = Program::interpreted(&program).expect("a jq program");
        let input = Decoded::new(Some(text.as_bytes()), crate::config::Encoding::Json).expect("JSON");
        let said = |program: &Program| {
            (
                program.run(&input, None, "transform", LIMITS).map_err(|error| error.to_string()),
                program.is_true(&input, None, "filter").map_err(|error| error.to_string()),
                program.text(&input, None, "eventType").map_err(|error| error.to_string()),
                program.json(&input, None, "orderingKey").map_err(|error| error.to_string()),
            )
        };
        prop_assert_eq!(said(&quick), said(&oracle), "{} on {}", program, text);
    }
}

#[test]
fn common_programs_need_no_interpreter() {
    let change = r#"{"op":"u","after":{"id":7,"amount":12.50,"tags":["x"],"customer":{"name":"Zoë"}},"ts_ms":1}"#;
    for (program, expected) in [
        (".", change),
        (".after.id", "7"),
        (".after | {orderId: .id, amount}", r#"{"orderId":7,"amount":12.50}"#),
        (
            r#"select(.op != "d") | {id: .after.id, kind: "order", first: .after.tags[0]}"#,
            r#"{"id":7,"kind":"order","first":"x"}"#,
        ),
        (".after.customer", r#"{"name":"Zoë"}"#),
        ("[.op, .ts_ms, .missing.too]", r#"["u",1,null]"#),
        (r#".op == "u" and .ts_ms >= 1"#, "true"),
    ] {
        let native = Native::compile(program).unwrap_or_else(|| panic!("{program} is native"));
        let output = native.run(change).unwrap_or_else(|_| panic!("{program} is sure"));
        assert_eq!(output.as_deref(), Some(expected), "{program}");
    }
    assert!(Native::compile("select(.op == \"d\")").unwrap().run(change).unwrap().is_none());
    for program in
        ["range(3)", ".a?", ".[]", "..", ".a + 1", "{(.a): 1}", "$record.key", ".a // 1", "{a: 1, a: 2}", "def f: .; f"]
    {
        assert!(Native::compile(program).is_none(), "{program}");
    }
}
