use super::*;
use crate::Role;

fn render(source: &str, messages: &[(Role, &str)], opens_answer: bool) -> Result<String, String> {
    render_told(source, messages, "{}", opens_answer)
}

fn render_told(source: &str, messages: &[(Role, &str)], arguments: &str, opens_answer: bool) -> Result<String, String> {
    let arguments = serde_json::from_str(arguments).expect("an object");
    let told = Told {
        tools: &[],
        arguments: &arguments,
        bytes: 0,
    };
    let names = TokenNames {
        bos_token: "<s>".into(),
        eos_token: "</s>".into(),
        ..TokenNames::default()
    };
    let messages: Vec<TemplateMessage<'_>> = messages
        .iter()
        .map(|&(role, content)| TemplateMessage::new(role, content))
        .collect();
    Template::compile(source, names)?.render(&messages, told, opens_answer)
}

#[test]
fn renders_as_model_makers_expect() {
    let hello = [(Role::User, "Hi <b>&'\" ")];
    let cases = [
        (
            "blocks eat their line",
            "{% if true %}\n  {% for m in messages %}\n{{ m.role }}:{{ m.content }}\n{% endfor %}\n{% endif %}\n",
            "user:Hi <b>&'\" \n",
        ),
        (
            "token names",
            "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}",
            "<s>|</s>|",
        ),
        (
            "Python methods",
            "{{ messages[0].content.strip().upper() }}{{ messages[0]['content'].startswith('Hi') }}",
            "HI <B>&'\"True",
        ),
        ("generation prompt", "{% if add_generation_prompt %}go{% endif %}", "go"),
        (
            "JSON as Python writes it",
            "{{ {'b': [1, 2.5, none], 'a': {'x': 'é<\"'}} | tojson }}",
            "{\"b\": [1, 2.5, null], \"a\": {\"x\": \"é<\\\"\"}}",
        ),
        (
            "JSON in ASCII, sorted",
            "{{ {'b': '😀', 'a': []} | tojson(ensure_ascii=true, sort_keys=true) }}",
            "{\"a\": [], \"b\": \"\\ud83d\\ude00\"}",
        ),
        (
            "JSON with indent",
            "{{ {'a': [1, {}], 'b': []} | tojson(indent=2) }}",
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}",
        ),
        (
            "JSON with separators",
            "{{ [1, {'a': 2}] | tojson(separators=[',', ':']) }}",
            "[1,{\"a\":2}]",
        ),
        (
            "training marks",
            "{%- generation -%}a{%- endgeneration -%}b{% generation %}c{% endgeneration %}",
            "abc",
        ),
        (
            "loop controls",
            "{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "01",
        ),
        (
            "macros and namespaces",
            "{% macro f(x) %}[{{ x }}]{% endmacro %}{% set n = namespace(a=1) %}{% set n.a = 2 %}{{ f(n.a) }}",
            "[2]",
        ),
        (
            "undefined is empty",
            "{{ tools }}{% if tools is defined %}x{% endif %}",
            "",
        ),
    ];
    for (name, source, want) in cases {
        assert_eq!(render(source, &hello, true).as_deref(), Ok(want), "{name}");
    }
}

#[test]
fn refusals_are_one_line() {
    let cases = [
        (
            "the template's own words",
            "{{ raise_exception('System role not supported') }}",
            "System role not supported (line 1)",
        ),
        (
            "a runaway loop",
            "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
            "fuel",
        ),
        (
            "a flood",
            "{% for i in range(99999) %}{{ 'x' * 100 }}{% endfor %}",
            "writes too much",
        ),
        (
            "a memory bomb",
            "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "",
        ),
        ("a syntax error", "a\n{% for %}", "line 2"),
        ("an unknown tag", "{% generation_not %}", "line 1"),
        ("a file", "{% include '/etc/passwd' %}", "include"),
        (
            "an unknown directive",
            "{{ strftime_now('%Q') }}",
            "%Q is not supported",
        ),
    ];
    for (name, source, want) in cases {
        let error = render(source, &[(Role::User, "x")], true).expect_err(name);
        assert!(error.contains(want) && !error.contains('\n'), "{name}: {error}");
    }
}

#[test]
fn a_template_is_told_arguments() {
    let thinks = "{% if enable_thinking is defined and enable_thinking is false %}no{% else %}yes{% endif %}\
                  {% if not enable_thinking | default(true) %}!{% endif %}";
    let shows = "{{ a.b[0] | tojson }} {{ n + 1 }} {{ none_given is none }} {{ bos_token }}{{ add_generation_prompt }}";
    for (source, arguments, want) in [
        (thinks, "{}", "yes"),
        (thinks, r#"{"enable_thinking": true}"#, "yes"),
        (thinks, r#"{"enable_thinking": false}"#, "no!"),
        (
            shows,
            r#"{"a": {"b": [{"c": 1}]}, "n": 2, "none_given": null}"#,
            "{\"c\": 1} 3 True <s>False",
        ),
    ] {
        let got = render_told(source, &[(Role::User, "x")], arguments, false);
        assert_eq!(got.as_deref(), Ok(want), "{source} {arguments}");
    }
}

#[test]
fn a_template_cannot_be_given_what_it_has() {
    for name in ["enable_thinking", "_a", "documents", "x1", &"a".repeat(64)] {
        assert_eq!(check_template_argument(name), Ok(()), "{name}");
    }
    for name in [
        "",
        "1a",
        "a-b",
        "a.b",
        "é",
        &"a".repeat(65),
        "messages",
        "bos_token",
        "raise_exception",
        "loop",
    ] {
        assert!(check_template_argument(name).is_err(), "{name}");
    }
}

#[test]
fn time_has_the_directives_that_templates_use() {
    // 2024-02-29 13:05:09 UTC, a Thursday.
    let at = 1_709_211_909;
    assert_eq!(
        strftime("%Y-%m-%d %H:%M:%S %Z %%", at).as_deref(),
        Ok("2024-02-29 13:05:09 UTC %")
    );
    assert_eq!(
        strftime("%A %a, %e. %B %b %y, %I %p", at).as_deref(),
        Ok("Thursday Thu, 29. February Feb 24, 01 PM")
    );
    assert_eq!(strftime("%d %b %Y", 0).as_deref(), Ok("01 Jan 1970"));
    assert_eq!(strftime("%d %b %Y %a", 951_868_800).as_deref(), Ok("01 Mar 2000 Wed"));
    assert_eq!(strftime("%", 0), Err(String::new()));
}
