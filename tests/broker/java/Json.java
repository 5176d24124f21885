import java.util.Collection;
import java.util.Map;
import java.util.stream.Collectors;

/** Maps, lists, texts and numbers as JSON on one line. */
public final class Json {
    private Json() { }

    public static String of(Object value) {
        if (value instanceof Map<?, ?> map)
            return map.entrySet().stream().map(entry -> of(entry.getKey()) + ":" + of(entry.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        if (value instanceof Collection<?> list)
            return list.stream().map(Json::of).collect(Collectors.joining(",", "[", "]"));
        if (value instanceof String text)
            return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
        return String.valueOf(value);
    }
}
