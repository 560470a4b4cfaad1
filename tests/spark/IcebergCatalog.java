package tests;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.hadoop.HadoopCatalog;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;
import org.apache.iceberg.spark.Spark3Util;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Tables of Iceberg in a directory, for Spark 4.3 with Iceberg's jar for Spark 4.1.
 *
 * <p>Two things of that jar fail in Spark 4.3: its catalog, because {@code View} is no interface any
 * more, and {@code SparkTable.columns()}, because it calls a method that has another parameter now.
 */
public final class IcebergCatalog implements TableCatalog, SupportsNamespaces {
  private String name;
  private HadoopCatalog tables;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    this.tables = new HeldCommits(Path.of(options.get("hold")));
    tables.setConf(SparkSession.active().sparkContext().hadoopConfiguration());
    tables.initialize(name, Map.of("warehouse", options.get("warehouse")));
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Identifier[] listTables(String[] namespace) {
    return tables.listTables(Namespace.of(namespace)).stream()
        .map(each -> Identifier.of(each.namespace().levels(), each.name()))
        .toArray(Identifier[]::new);
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    try {
      return new TableOfSpark43(tables.loadTable(of(table)));
    } catch (org.apache.iceberg.exceptions.NoSuchTableException error) {
      throw new NoSuchTableException(table);
    }
  }

  @Override
  public Table createTable(
      Identifier table, StructType schema, Transform[] parts, Map<String, String> given) {
    Map<String, String> properties = new HashMap<>(given);
    properties.keySet().removeAll(Arrays.asList(PROP_PROVIDER, TableCatalog.PROP_OWNER));
    PartitionSpec whole = PartitionSpec.unpartitioned();
    return new TableOfSpark43(
        tables.createTable(of(table), SparkSchemaUtil.convert(schema), whole, properties));
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) throws NoSuchTableException {
    Spark3Util.applyPropertyChanges(
            tables.loadTable(of(table)).updateProperties(), Arrays.asList(changes))
        .commit();
    return loadTable(table);
  }

  @Override
  public boolean dropTable(Identifier table) {
    return tables.dropTable(of(table));
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    tables.renameTable(of(from), of(to));
  }

  @Override
  public String[][] listNamespaces() {
    return listNamespaces(new String[0]);
  }

  @Override
  public String[][] listNamespaces(String[] namespace) {
    return tables.listNamespaces(Namespace.of(namespace)).stream()
        .map(Namespace::levels)
        .toArray(String[][]::new);
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) {
    return tables.loadNamespaceMetadata(Namespace.of(namespace));
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> properties) {
    tables.createNamespace(Namespace.of(namespace));
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw new UnsupportedOperationException("a directory has no properties");
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    return tables.dropNamespace(Namespace.of(namespace));
  }

  private static TableIdentifier of(Identifier table) {
    return TableIdentifier.of(Namespace.of(table.namespace()), table.name());
  }

  private static final class TableOfSpark43 extends SparkTable {
    TableOfSpark43(org.apache.iceberg.Table table) {
      super(table);
    }

    @Override
    public Column[] columns() {
      return Arrays.stream(schema().fields())
          .map(each -> Column.create(each.name(), each.dataType(), each.nullable()))
          .toArray(Column[]::new);
    }
  }

  /** While a file is there, no commit of rows returns: what it has committed can be seen. */
  private static final class HeldCommits extends HadoopCatalog {
    private final Path hold;

    HeldCommits(Path hold) {
      this.hold = hold;
    }

    @Override
    protected TableOperations newTableOps(TableIdentifier table) {
      TableOperations own = super.newTableOps(table);
      return new TableOperations() {
        @Override
        public TableMetadata current() {
          return own.current();
        }

        @Override
        public TableMetadata refresh() {
          return own.refresh();
        }

        @Override
        public void commit(TableMetadata base, TableMetadata next) {
          own.commit(base, next);
          while (next.currentSnapshot() != null && Files.exists(hold)) {
            try {
              Thread.sleep(100);
            } catch (InterruptedException stopped) {
              throw new IllegalStateException(stopped);
            }
          }
        }

        @Override
        public FileIO io() {
          return own.io();
        }

        @Override
        public String metadataFileLocation(String file) {
          return own.metadataFileLocation(file);
        }

        @Override
        public LocationProvider locationProvider() {
          return own.locationProvider();
        }
      };
    }
  }
}
