import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/** Writes a server's data in which the counter of the node /wraps/a has this value. */
public class NearWrap {
    public static void main(String[] arguments) throws Exception {
        File directory = new File(arguments[0]);
        DataTree tree = new DataTree();
        for (String path : new String[] {"/wraps", "/wraps/a"}) {
            tree.lastProcessedZxid += 1;
            tree.createNode(path, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, 0, -1, tree.lastProcessedZxid, 0);
        }
        tree.getNode("/wraps/a").stat.setCversion(Integer.parseInt(arguments[1]));
        new FileTxnSnapLog(directory, directory).save(tree, new ConcurrentHashMap<>(), true);
    }
}
