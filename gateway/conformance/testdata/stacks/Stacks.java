import jakarta.servlet.http.*;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.regex.*;

/** Orders and their like as a servlet of Tomcat reads them: each answer says what it worked on. */
public class Stacks extends HttpServlet {
    @Override
    protected void service(HttpServletRequest req, HttpServletResponse res) {
        String kind = "none", value = null, info = req.getPathInfo();
        switch (req.getServletPath()) {
            case "/orders":
                if (info != null && info.length() > 1) {
                    kind = "order";
                    value = info.substring(1).split("/", 2)[0];
                }
                break;
            case "/nums":
                try {
                    value = "" + Long.parseLong(info.substring(1));
                    kind = "num";
                } catch (RuntimeException e) {
                }
                break;
            case "/room":
                kind = "room";
                value = req.getParameter("room");
                break;
            case "/cart":
                kind = "cart";
                if (req.getCookies() != null) {
                    for (Cookie c : req.getCookies()) {
                        if (value == null && c.getName().equals("cart")) value = c.getValue();
                    }
                }
                break;
            case "/owner":
                kind = "owner";
                value = req.getHeader("X-Owner");
                break;
            case "/pay":
                if (req.getMethod().equals("POST") && info != null && info.lastIndexOf('/') == 0) {
                    kind = "pay";
                    value = info.substring(1);
                }
                break;
        }
        String key = req.getHeader("Keyway-Key");
        res.setHeader("X-App", "1");
        res.setHeader("X-Key", key == null ? "" : key);
        res.setHeader("X-Resource", value == null || value.isEmpty() ? "" : URLEncoder.encode(kind + ":" + value, StandardCharsets.UTF_8).replace("+", "%20"));
    }
}
