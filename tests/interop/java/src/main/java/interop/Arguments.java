package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** {@code WORD... --option value --flag}: words, options (repeatable) and flags; options nobody asked for are errors. */
final class Arguments {
    private final List<String> words = new ArrayList<>();
    private final Map<String, List<String>> options = new HashMap<>();
    private final Set<String> asked = new HashSet<>();

    private Arguments() {
    }

    static Arguments parse(List<String> given) {
        Arguments arguments = new Arguments();
        for (int i = 0; i < given.size(); i++) {
            String word = given.get(i);
            if (!word.startsWith("--")) {
                arguments.words.add(word);
                continue;
            }
            boolean isFlag = i + 1 == given.size() || given.get(i + 1).startsWith("--");
            String value = isFlag ? "true" : given.get(++i);
            arguments.options.computeIfAbsent(word.substring(2), name -> new ArrayList<>()).add(value);
        }
        return arguments;
    }

    String word(String meaning) {
        if (words.size() != 1) {
            throw new UsageException("expected exactly one word, " + meaning + ", but got " + words);
        }
        return words.get(0);
    }

    List<String> all(String name) {
        asked.add(name);
        return options.getOrDefault(name, List.of());
    }

    String text(String name, String fallback) {
        List<String> values = all(name);
        if (values.size() > 1) {
            throw new UsageException("--" + name + " was given " + values.size() + " times");
        }
        return values.isEmpty() ? fallback : values.get(0);
    }

    String text(String name) {
        String value = text(name, null);
        if (value == null) {
            throw new UsageException("--" + name + " is missing");
        }
        return value;
    }

    long number(String name, long fallback) {
        String value = text(name, null);
        try {
            return value == null ? fallback : Long.parseLong(value);
        } catch (NumberFormatException e) {
            throw new UsageException("--" + name + " is not a number: " + value);
        }
    }

    int integer(String name, int fallback) {
        return Math.toIntExact(number(name, fallback));
    }

    boolean flag(String name) {
        return Boolean.parseBoolean(text(name, "false"));
    }

    boolean has(String name) {
        return !all(name).isEmpty();
    }

    /** {@code --name key=value}, any number of times. */
    Map<String, String> pairs(String name) {
        Map<String, String> pairs = new HashMap<>();
        for (String pair : all(name)) {
            int equals = pair.indexOf('=');
            if (equals < 0) {
                throw new UsageException("--" + name + " wants key=value, not " + pair);
            }
            pairs.put(pair.substring(0, equals), pair.substring(equals + 1));
        }
        return pairs;
    }

    /** To be called when every option has been read. */
    void refuseUnknown() {
        Set<String> unknown = new HashSet<>(options.keySet());
        unknown.removeAll(asked);
        if (!unknown.isEmpty()) {
            throw new UsageException("unknown options: " + unknown + "; known here: " + asked);
        }
    }
}
